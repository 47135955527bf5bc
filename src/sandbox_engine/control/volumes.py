import hmac
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from starlette.types import Receive, Scope, Send

from sandbox_engine.control.deps import DomainDep, VolumesDep, check_api_key
from sandbox_engine.control.models.volumes import (
    ChangeBody,
    Listing,
    NewVolumeBody,
    Stat,
    Volume,
    VolumeAndToken,
)
from sandbox_engine.envd.files.body import read_body
from sandbox_engine.envd.files.download import Download, OpenFile
from sandbox_engine.rootfs.ownership import Owner
from sandbox_engine.rootfs.root import Root
from sandbox_engine.system.errors import Unauthorized
from sandbox_engine.system.file_threads import FileThreads
from sandbox_engine.volumes import content
from sandbox_engine.volumes.new_file import NewFile
from sandbox_engine.volumes.volume import DEFAULT_ID, DIRECTORY_MODE

content_router = APIRouter(prefix="/volumecontent/{volume_id}", tags=["volume content"])

T = TypeVar("T")

_FILE_MODE = 0o666
_PIECE_BYTES = 1 << 20


router = APIRouter(tags=["volumes"], dependencies=[Depends(check_api_key)])


@router.post("/volumes", status_code=201)
async def create_volume(
    body: NewVolumeBody, volumes: VolumesDep, domain: DomainDep
) -> VolumeAndToken:
    """Create an empty volume; sandboxes mount it by name."""
    return VolumeAndToken.with_token(await volumes.create(body.name), domain)


@router.get("/volumes")
async def list_volumes(volumes: VolumesDep) -> list[Volume]:
    """List volumes, oldest first."""
    return [Volume.of(record) for record in volumes.all()]


@router.get("/volumes/{volume_id}")
async def get_volume(volume_id: str, volumes: VolumesDep, domain: DomainDep) -> VolumeAndToken:
    """Get a volume with its token."""
    return VolumeAndToken.with_token(volumes.get(volume_id).record, domain)


@router.delete("/volumes/{volume_id}", status_code=204)
async def delete_volume(volume_id: str, volumes: VolumesDep) -> None:
    """Delete a volume; sandboxes that have it mounted keep its files until they are deleted."""
    await volumes.delete(volume_id)


@dataclass(frozen=True)
class OpenVolume:
    """A volume that stays mounted until the response is sent."""

    root: Root
    workers: FileThreads
    disk_room: Callable[[], int]

    async def run(self, work: Callable[[], T]) -> T:
        return await self.workers.run(work)


async def open_volume(
    volume_id: str, volumes: VolumesDep, authorization: Annotated[str, Header()] = ""
) -> AsyncIterator[OpenVolume]:
    """Open the volume; requires its token."""
    volume = volumes.get(volume_id)
    expected = f"Bearer {volume.record.token}"
    if not hmac.compare_digest(authorization.encode(), expected.encode()):
        raise Unauthorized("Invalid volume token")
    async with volumes.opened(volume) as root:
        yield OpenVolume(root, volume.workers, volumes.capacity.disk_room)


async def read_path(path: str) -> str:
    return content.normalize(path)


async def read_owner(uid: int = DEFAULT_ID, gid: int = DEFAULT_ID) -> Owner:
    return Owner(uid, gid)


VolumeDep = Annotated[OpenVolume, Depends(open_volume)]
PathDep = Annotated[str, Depends(read_path)]
OwnerDep = Annotated[Owner, Depends(read_owner)]


class FileAnswer(Response):
    """Streams a file of a volume in constant memory."""

    def __init__(self, file: OpenFile, volume: OpenVolume, request: Request) -> None:
        super().__init__()
        self._root = volume.root
        self._download = Download(
            file,
            encoding="identity",
            headers=request.headers,
            is_head=False,
            workers=volume.workers,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._download.send(self._root, scope, receive, send)


@content_router.get("/path", response_model_exclude_none=True)
async def get_path(volume: VolumeDep, path: PathDep) -> Stat:
    """Get an entry: file, directory or symbolic link."""
    return Stat.of(await volume.run(partial(content.describe, volume.root, path)))


@content_router.patch("/path", response_model_exclude_none=True)
async def change_path(volume: VolumeDep, path: PathDep, body: ChangeBody) -> Stat:
    """Change the owner and mode of an entry."""
    change = partial(content.change, uid=body.uid, gid=body.gid, mode=body.mode)
    return Stat.of(await volume.run(partial(change, volume.root, path)))


@content_router.delete("/path", status_code=204)
async def delete_path(volume: VolumeDep, path: PathDep) -> None:
    """Delete a file, or a directory recursively."""
    await volume.run(partial(content.remove, volume.root, path))


@content_router.get("/dir", response_model=list[Stat])
async def list_directory(
    volume: VolumeDep, path: PathDep, depth: Annotated[int, Query(ge=0)] = 1
) -> Response:
    """List a directory."""
    listing = partial(content.list_directory, volume.root, path, depth=depth)
    # A long listing is serialized in the thread too, outside the event loop.
    text = await volume.run(lambda: Listing.text_of(listing()))
    return Response(text, media_type="application/json")


@content_router.post("/dir", status_code=201, response_model_exclude_none=True)
async def make_directory(
    volume: VolumeDep,
    path: PathDep,
    owner: OwnerDep,
    mode: int = DIRECTORY_MODE,
    force: bool = False,  # noqa: FBT001, FBT002 - a query parameter
) -> Stat:
    """Create a directory; `force` also creates parents and accepts an existing one."""
    make = partial(content.make_directory, owner=owner, mode=mode, force=force)
    return Stat.of(await volume.run(partial(make, volume.root, path)))


@content_router.get("/file")
async def read_file(volume: VolumeDep, path: PathDep, request: Request) -> FileAnswer:
    """Download a file."""

    def open_file() -> OpenFile:
        with content.reported(path):
            return OpenFile.open(volume.root, path)

    opened = await volume.workers.run(open_file, discard=OpenFile.close)
    return FileAnswer(opened, volume, request)


@content_router.put("/file", status_code=201, response_model_exclude_none=True)
async def write_file(
    volume: VolumeDep,
    path: PathDep,
    owner: OwnerDep,
    request: Request,
    mode: int = _FILE_MODE,
    force: bool = False,  # noqa: FBT001, FBT002 - a query parameter
) -> Stat:
    """Write a file atomically; `force` creates parent directories and replaces a file."""
    begin = partial(NewFile, volume.root, path, owner=owner, mode=mode, force=force)
    file = await volume.workers.run(
        partial(begin, disk_room=volume.disk_room), discard=NewFile.close
    )
    try:
        async for piece in _pieces(read_body(request.receive)):
            await volume.run(partial(file.write, piece))
        return Stat.of(await volume.run(file.publish))
    finally:
        file.close()


async def _pieces(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    waiting = bytearray()
    async for data in body:
        waiting += data
        if len(waiting) >= _PIECE_BYTES:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)
