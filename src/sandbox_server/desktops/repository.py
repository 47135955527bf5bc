from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Desktop, DesktopLink, Sandbox, Ticket
from sandbox_server.domain.computers.desktops import DesktopHolder, DesktopMode, DesktopSettings
from sandbox_server.domain.errors import DesktopLinkNotFound, SandboxNotFound
from sandbox_server.jobs.kinds import DESKTOP
from sandbox_server.jobs.repository import JobRepository

_now = func.clock_timestamp()


@dataclass(frozen=True, kw_only=True)
class ValidLink:
    """A link with the expiry of its ticket."""

    id: str
    sandbox_id: str
    mode: DesktopMode
    name: str | None
    created_at: datetime
    expires_at: datetime


class DesktopRepository:
    def __init__(self, session: AsyncSession) -> None:
        self.session = session

    async def read(self, sandbox_id: str) -> tuple[Sandbox, Desktop | None, datetime]:
        """Read a sandbox with its desktop, which it has from its first change on, and the database's clock."""
        found = await self.session.execute(
            select(Sandbox, Desktop, _now)
            .outerjoin(Desktop, Desktop.sandbox_id == Sandbox.id)
            .where(Sandbox.id == sandbox_id)
        )
        row = found.one_or_none()
        if row is None:
            raise SandboxNotFound(sandbox_id)
        return row[0], row[1], row[2]

    async def settings(self, sandbox_id: str) -> DesktopSettings:
        """Return the requested settings of the desktop, which is locked."""
        stored = select(Sandbox.desktop).where(Sandbox.id == sandbox_id)
        return DesktopSettings.of(await self.session.scalar(stored))

    async def lock(self, sandbox_id: str) -> tuple[Desktop, datetime]:
        """Lock the desktop of a sandbox, which gets a row if it has none; returns it with the database's clock."""
        added = insert(Desktop).values(sandbox_id=sandbox_id).on_conflict_do_nothing()
        await self.session.execute(added)
        found = await self.session.execute(
            select(Desktop, _now)
            .where(Desktop.sandbox_id == sandbox_id)
            .with_for_update()
            .execution_options(populate_existing=True)
        )
        desktop, now = found.one()
        return desktop, now

    async def set_settings(self, sandbox_id: str, settings: DesktopSettings) -> None:
        """Store the settings; they are due to be applied."""
        stored = update(Sandbox).where(Sandbox.id == sandbox_id)
        await self.session.execute(stored.values(desktop=settings.document()))
        await self.change(sandbox_id)

    async def change(self, sandbox_id: str, **values: Any) -> None:
        """Change a desktop that is locked, and have the change applied."""
        changed = update(Desktop).where(Desktop.sandbox_id == sandbox_id)
        await self.session.execute(changed.values(version=Desktop.version + 1, **values))
        await JobRepository(self.session).due(DESKTOP, sandbox_id)

    async def note_applied(self, sandbox_id: str, *, version: int, run: datetime | None) -> None:
        """Record that settings and holder of this version were applied in this run of the sandbox."""
        added = insert(Desktop).values(
            sandbox_id=sandbox_id, applied_version=version, applied_run=run
        )
        await self.session.execute(
            added.on_conflict_do_update(
                index_elements=[Desktop.sandbox_id],
                set_={"applied_version": version, "applied_run": run},
                where=Desktop.version == version,
            )
        )

    async def renew(self, sandbox_id: str, *, link_id: str, lease: timedelta) -> datetime | None:
        """Prolong the control of a link, up to the link's own end; None if it no longer has control."""
        expiry = (
            select(Ticket.expires_at)
            .join(DesktopLink, DesktopLink.ticket_hash == Ticket.hash)
            .where(DesktopLink.id == link_id, Ticket.expires_at > _now)
            .scalar_subquery()
        )
        until: datetime | None = await self.session.scalar(
            update(Desktop)
            .where(
                Desktop.sandbox_id == sandbox_id,
                Desktop.holder == DesktopHolder.PERSON,
                Desktop.holder_link_id == link_id,
                Desktop.held_until > _now,
                expiry.is_not(None),
            )
            .values(held_until=func.least(_now + lease, expiry))
            .returning(Desktop.held_until)
        )
        return until

    async def add_link(self, link: DesktopLink) -> datetime:
        """Insert a link; returns the database's clock."""
        self.session.add(link)
        await self.session.flush()
        await self.session.refresh(link, ["created_at"])
        return link.created_at

    async def find_link(self, ticket_hash: bytes) -> ValidLink | None:
        """Find the valid link of a ticket."""
        found = await self.session.execute(_links().where(Ticket.hash == ticket_hash))
        row = found.one_or_none()
        return None if row is None else _link(row)

    async def list_links(self, sandbox_id: str) -> Sequence[ValidLink]:
        """List the valid links of a desktop, newest first."""
        query = _links().where(DesktopLink.sandbox_id == sandbox_id)
        found = await self.session.execute(query.order_by(DesktopLink.id.desc()))
        return [_link(row) for row in found]

    async def remove_link(self, sandbox_id: str, link_id: str) -> None:
        """Delete a link with its ticket."""
        own = select(DesktopLink.ticket_hash).where(
            DesktopLink.id == link_id, DesktopLink.sandbox_id == sandbox_id
        )
        removal = delete(Ticket).where(Ticket.hash.in_(own)).returning(Ticket.hash)
        if (await self.session.execute(removal)).first() is None:
            raise DesktopLinkNotFound(link_id)


def is_held(desktop: Desktop | None, now: datetime) -> bool:
    """Return whether a person has control; an expired control has ended, though nothing has recorded it yet."""
    return (
        desktop is not None
        and desktop.holder == DesktopHolder.PERSON
        and desktop.held_until is not None
        and desktop.held_until > now
    )


def _links() -> Any:
    return (
        select(
            DesktopLink.id,
            DesktopLink.sandbox_id,
            DesktopLink.mode,
            DesktopLink.name,
            DesktopLink.created_at,
            Ticket.expires_at,
        )
        .join(Ticket, Ticket.hash == DesktopLink.ticket_hash)
        .where(Ticket.expires_at > _now)
    )


def _link(row: Any) -> ValidLink:
    fields = row._asdict()
    return ValidLink(**{**fields, "mode": DesktopMode(fields["mode"])})
