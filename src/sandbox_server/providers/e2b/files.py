import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b import AsyncSandbox
from e2b.connection_config import KEEPALIVE_PING_HEADER, KEEPALIVE_PING_INTERVAL_SEC
from e2b.envd.client_async import as_stream, first_event
from e2b.envd.filesystem import filesystem_pb as pb
from e2b.envd.filesystem.filesystem_connect import FilesystemClient
from e2b.envd.utils import authentication_header
from packaging.version import Version
from protobuf import Oneof

from sandbox_server.domain.errors import PathNotFound, SandboxError, TooManyEntries
from sandbox_server.domain.files import Change, ChangeType, Entry, EntryType
from sandbox_server.providers.e2b.bounded_transport import envd_client
from sandbox_server.providers.e2b.inside_failures import INSIDE_FAILURES, inside_failure
from sandbox_server.providers.e2b.working_directories import WorkingDirectories
from sandbox_server.providers.protocol.errors import AnswerLost

T = TypeVar("T")

LIMIT = timedelta(seconds=30)

_LARGEST_LISTING = 4 * 1024 * 1024  # takes 60 ms to read
_LARGEST_CHANGE = 64 * 1024
_SECOND = 1_000_000_000
_PERMISSIONS = 0o777
_TYPES = {pb.FileType.FILE: EntryType.FILE, pb.FileType.DIRECTORY: EntryType.DIRECTORY}
_CHANGES = {
    pb.EventType.CREATE: ChangeType.CREATED,
    pb.EventType.WRITE: ChangeType.WRITTEN,
    pb.EventType.REMOVE: ChangeType.REMOVED,
    pb.EventType.RENAME: ChangeType.RENAMED,
    pb.EventType.CHMOD: ChangeType.CHMOD,
}


class Files:
    """Inspect, watch and move the files of one sandbox as one of its users. Relative paths are in its working directory."""

    def __init__(
        self,
        name: str,
        sandbox: AsyncSandbox,
        *,
        envd_version: str,
        user: str | None,
        directories: WorkingDirectories,
        limit: timedelta = LIMIT,
    ) -> None:
        self._name = name
        self._sandbox = sandbox
        self._limit = limit
        self._user = user
        self._directories = directories
        self._headers = authentication_header(Version(envd_version), user)
        self._rpc = envd_client(FilesystemClient, sandbox, most=_LARGEST_LISTING)

    async def stat(self, path: str) -> Entry:
        """Describe the file at a path; a link with its target."""
        request = pb.StatRequest(path=await self._resolve(path))
        answer = await self._ask(self._rpc.stat(request, **self._call), path)
        return _entry(answer.entry)

    async def find(self, path: str) -> Entry | None:
        try:
            return await self.stat(path)
        except PathNotFound:
            return None

    async def list_below(
        self, path: str, *, depth: int, limit: int, after: str | None = None
    ) -> Sequence[Entry]:
        """List a directory to a depth, in the order of paths, after the path `after`."""
        request = pb.ListDirRequest(path=await self._resolve(path), depth=depth)
        listing = _listing(self._rpc.list_dir(request, **self._call), path)
        answer = await self._ask(listing, path)
        left = [entry for entry in answer.entries if after is None or entry.path > after]
        left.sort(key=lambda entry: entry.path)
        return [_entry(entry) for entry in left[:limit]]

    async def make_directory(self, path: str) -> Entry | None:
        """Create a directory and its parents; returns None if it exists."""
        request = pb.MakeDirRequest(path=await self._resolve(path))
        making = _unless_there(self._rpc.make_dir(request, **self._call))
        answer = await self._ask(making, path)
        return None if answer is None else _entry(answer.entry)

    async def move(self, source: str, destination: str) -> Entry:
        """Rename a file or directory, replacing a file of that name."""
        request = pb.MoveRequest(
            source=await self._resolve(source), destination=await self._resolve(destination)
        )
        answer = await self._ask(self._rpc.move(request, **self._call), source)
        return _entry(answer.entry)

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content; idempotent."""
        request = pb.RemoveRequest(path=await self._resolve(path))
        await self._ask(self._rpc.remove(request, **self._call), path)

    async def watch(self, path: str, *, recursive: bool) -> AsyncGenerator[Change, None]:
        """Watch a directory recursively, from the return of this call on."""
        watching = partial(FilesystemClient, read_max_bytes=_LARGEST_CHANGE)
        client = envd_client(watching, self._sandbox)
        keepalive = {KEEPALIVE_PING_HEADER: str(KEEPALIVE_PING_INTERVAL_SEC)}
        request = pb.WatchDirRequest(path=await self._resolve(path), recursive=recursive)
        events = as_stream(client.watch_dir(request, headers={**self._headers, **keepalive}))
        try:
            await self._ask(first_event(events, self._limit.total_seconds()), path)
        except BaseException:
            await events.aclose()
            raise
        return self._changes(events, path)

    async def _changes(
        self, events: AsyncGenerator[pb.WatchDirResponse, Any], path: str
    ) -> AsyncGenerator[Change, None]:
        async with aclosing(events):
            while (event := await self._ask(anext(events, None), path, limit=None)) is not None:
                match event.event:
                    case Oneof(field="filesystem", value=pb.FilesystemEvent() as happened):
                        if (kind := _CHANGES.get(happened.type)) is not None:
                            yield Change(type=kind, path=happened.name)

    async def _resolve(self, path: str) -> str:
        return await self._directories.resolve(path, user=self._user)

    @property
    def _call(self) -> Mapping[str, Any]:
        return {"headers": self._headers}

    async def _ask(self, work: Awaitable[T], path: str, *, limit: timedelta | None = LIMIT) -> T:
        failure: SandboxError
        seconds = None if limit is None else self._limit.total_seconds()
        try:
            async with asyncio.timeout(seconds) as patience:
                return await work
        except INSIDE_FAILURES as error:
            if patience.expired():
                failure = AnswerLost(self._name, f"the sandbox takes longer than {seconds:g} s")
            else:
                failure = await inside_failure(error, self._sandbox, name=self._name, path=path)
        # Raised outside of the handler, without context: the SDK's errors can hold the request with its token.
        raise failure


async def _listing(asked: Awaitable[pb.ListDirResponse], path: str) -> pb.ListDirResponse:
    try:
        return await asked
    except ConnectError as error:
        if error.code is not Code.RESOURCE_EXHAUSTED:
            raise
    raise TooManyEntries(path)


async def _unless_there(asked: Awaitable[pb.MakeDirResponse]) -> pb.MakeDirResponse | None:
    try:
        return await asked
    except ConnectError as error:
        if error.code is not Code.ALREADY_EXISTS:
            raise
    return None


def _entry(entry: pb.EntryInfo | None) -> Entry:
    entry = entry or pb.EntryInfo()
    at = entry.modified_time
    return Entry(
        path=entry.path,
        name=entry.name,
        type=_TYPES.get(entry.type or pb.FileType.UNSPECIFIED, EntryType.OTHER),
        size=entry.size,
        mode=entry.mode & _PERMISSIONS,
        owner=entry.owner,
        group=entry.group,
        modified_ns=0 if at is None else at.seconds * _SECOND + at.nanos,
        symlink_target=entry.symlink_target if entry.has_field("symlink_target") else None,
    )
