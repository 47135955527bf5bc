from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Self

from pydantic import Field, RootModel

from sandbox_engine.control.models.wire import WireModel
from sandbox_engine.envd.protocol.entries import printable
from sandbox_engine.volumes.entry import Entry, Kind
from sandbox_engine.volumes.record import VolumeRecord


class NewVolumeBody(WireModel):
    name: str


class Volume(WireModel):
    """A volume in a list."""

    volume_id: str = Field(alias="volumeID")
    name: str

    @classmethod
    def of(cls, record: VolumeRecord) -> Self:
        return cls(volume_id=record.id, name=record.name)


class VolumeAndToken(Volume):
    """A volume with the token for its contents."""

    token: str
    # Without a domain the SDK would send the token to E2B.
    domain: str

    @classmethod
    def with_token(cls, record: VolumeRecord, domain: str) -> Self:
        return cls(volume_id=record.id, name=record.name, token=record.token, domain=domain)


class Stat(WireModel):
    """An entry of a volume."""

    name: str
    type: Kind
    path: str
    size: int
    mode: int
    uid: int
    gid: int
    atime: datetime
    mtime: datetime
    ctime: datetime
    target: str | None = None

    @classmethod
    def of(cls, entry: Entry) -> Self:
        status = entry.status
        return cls(
            name=printable(entry.name),
            type=entry.kind,
            path=printable(entry.path),
            size=status.st_size,
            mode=entry.mode,
            uid=entry.owner.uid,
            gid=entry.owner.gid,
            atime=datetime.fromtimestamp(status.st_atime, UTC),
            mtime=datetime.fromtimestamp(status.st_mtime, UTC),
            ctime=datetime.fromtimestamp(status.st_ctime, UTC),
            target=None if entry.target is None else printable(entry.target),
        )


class ChangeBody(WireModel):
    uid: int | None = None
    gid: int | None = None
    mode: int | None = None


class Listing(RootModel[list[Stat]]):
    """The entries of a directory."""

    @classmethod
    def text_of(cls, entries: Iterable[Entry]) -> str:
        listing = cls([Stat.of(entry) for entry in entries])
        return listing.model_dump_json(by_alias=True, exclude_none=True)
