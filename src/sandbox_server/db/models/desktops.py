from datetime import datetime

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.access import Ticket
from sandbox_server.db.models.columns import Count, Id, Row, Switch, one_of
from sandbox_server.db.models.sandboxes import Sandbox
from sandbox_server.domain.computers.desktops import DesktopHolder, DesktopMode


class Desktop(Row):
    """Who controls the desktop of a sandbox, and which of its settings were applied."""

    __tablename__ = "desktops"
    __table_args__ = (one_of("holder", *DesktopHolder),)

    sandbox_id: Mapped[Id] = mapped_column(
        ForeignKey(Sandbox.id, ondelete="CASCADE"), primary_key=True
    )
    holder: Mapped[str] = mapped_column(server_default=DesktopHolder.AGENT)
    holder_link_id: Mapped[Id | None]
    holder_name: Mapped[str | None]
    held_since: Mapped[datetime | None]
    held_until: Mapped[datetime | None]
    version: Mapped[Count]  # of settings and holder
    applied_version: Mapped[int | None]
    applied_run: Mapped[datetime | None]  # `started_at` of the run of the sandbox


class DesktopLink(Row):
    """A link to a desktop; its ticket has the secret's hash and when it expires."""

    __tablename__ = "desktop_links"
    __table_args__ = (one_of("mode", *DesktopMode), Index(None, "sandbox_id", "id"))

    id: Mapped[Id] = mapped_column(primary_key=True)
    sandbox_id: Mapped[Id] = mapped_column(ForeignKey(Sandbox.id, ondelete="CASCADE"))
    ticket_hash: Mapped[bytes] = mapped_column(
        LargeBinary, ForeignKey(Ticket.hash, ondelete="CASCADE"), unique=True
    )
    mode: Mapped[str]
    name: Mapped[str | None]


class DesktopRecording(Row):
    """A recording of a desktop as far as it was copied from its sandbox."""

    __tablename__ = "desktop_recordings"
    __table_args__ = (Index(None, "ended_at", postgresql_where=text("ended_at IS NOT NULL")),)

    sandbox_id: Mapped[Id] = mapped_column(
        ForeignKey(Sandbox.id, ondelete="CASCADE"), primary_key=True
    )
    id: Mapped[Id] = mapped_column(primary_key=True)  # given in the sandbox
    fps: Mapped[int]
    width: Mapped[int]
    height: Mapped[int]
    started_at: Mapped[datetime]
    timescale: Mapped[Count]  # units of time per second; 0: nothing was copied
    copied: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))  # of the file there
    bytes: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))  # that are kept
    copied_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    end_reason: Mapped[str | None]


class DesktopRecordingPart(Row):
    """A part of a recording's video, encrypted; part 0 is its head."""

    __tablename__ = "desktop_recording_parts"
    __table_args__ = (
        ForeignKeyConstraint(
            ["sandbox_id", "recording_id"],
            ["desktop_recordings.sandbox_id", "desktop_recordings.id"],
            ondelete="CASCADE",
            name="desktop_recording_parts_recording_fkey",
        ),
        UniqueConstraint(
            "sandbox_id", "recording_id", "part", name="desktop_recording_parts_part_key"
        ),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    sandbox_id: Mapped[Id]
    recording_id: Mapped[Id]
    part: Mapped[int]
    begins: Mapped[int] = mapped_column(BigInteger)
    lasts: Mapped[int] = mapped_column(BigInteger)
    is_key: Mapped[Switch]
    size: Mapped[int] = mapped_column(BigInteger)
    content_sealed: Mapped[bytes]
