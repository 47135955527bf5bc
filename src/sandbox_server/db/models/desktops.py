from datetime import datetime

from sqlalchemy import ForeignKey, Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.access import Ticket
from sandbox_server.db.models.columns import Count, Id, Row, one_of
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
