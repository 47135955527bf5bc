from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox_server.db.models import Desktop, Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.desktops.repository import DesktopRepository, ValidLink, is_held
from sandbox_server.domain.computers.desktops import ControlReturned, ControlTaken, DesktopHolder
from sandbox_server.domain.errors import DesktopControlled
from sandbox_server.domain.events import SERVER, Actor, Cause
from sandbox_server.log.events import EventRepository

NOBODY = {"holder_link_id": None, "holder_name": None, "held_since": None, "held_until": None}


@dataclass(frozen=True, kw_only=True)
class Person:
    """The one who takes control: by a link, or through the API."""

    actor: Actor
    link: ValidLink | None = None

    @property
    def link_id(self) -> str | None:
        return None if self.link is None else self.link.id

    @property
    def name(self) -> str | None:
        return None if self.link is None else self.link.name


class DesktopControl:
    """Commits who controls a desktop: the agent, or for a limited time a person.

    The control of a person is a lease. The person's page prolongs it while it is open, so a page that leaves, a lost
    connection and a crashed server all end it. Each change is an event of the sandbox, with the change applied afterwards.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def take(self, row: Sandbox, person: Person, *, lease: timedelta) -> None:
        """Give control to a person; raises `DesktopControlled` if another person has it."""
        async with self._sessions.begin() as session:
            repository = DesktopRepository(session)
            desktop, now = await repository.lock(row.id)
            until = now + lease
            if person.link is not None:
                until = min(until, person.link.expires_at)
            if is_held(desktop, now):
                if desktop.holder_link_id != person.link_id:
                    raise DesktopControlled(by=desktop.holder_name)
                desktop.held_until = until
                return
            events = [*_ended(row, desktop), _taken(row, person)]
            await repository.change(
                row.id,
                holder=DesktopHolder.PERSON,
                holder_link_id=person.link_id,
                holder_name=person.name,
                held_since=now,
                held_until=until,
            )
            await EventRepository(session).append(row.tenant_id, *events)

    async def give_back(
        self, row: Sandbox, person: Person, *, reason: str, of: str | None = None
    ) -> None:
        """Return control to the agent; a link can only return its own, and with `of` only that of this link is returned."""
        async with self._sessions.begin() as session:
            repository = DesktopRepository(session)
            desktop, now = await repository.lock(row.id)
            is_other = of is not None and desktop.holder_link_id != of
            if desktop.holder == DesktopHolder.AGENT or is_other:
                return
            if not is_held(desktop, now):
                await self._return(repository, row, _ended(row, desktop))
                return
            if person.link is not None and desktop.holder_link_id != person.link_id:
                raise DesktopControlled(by=desktop.holder_name)
            event = _returned(row, desktop, cause=Cause.REQUEST, actor=person.actor, reason=reason)
            await self._return(repository, row, [event])

    async def lapse(self, row: Sandbox) -> datetime | None:
        """Return control to the agent if the person's time is over; returns when it is, if that is later."""
        async with self._sessions.begin() as session:
            repository = DesktopRepository(session)
            desktop, now = await repository.lock(row.id)
            if desktop.holder == DesktopHolder.AGENT:
                return None
            if is_held(desktop, now):
                return desktop.held_until
            await self._return(repository, row, _ended(row, desktop))
            return None

    async def _return(
        self, repository: DesktopRepository, row: Sandbox, events: list[ControlReturned]
    ) -> None:
        await repository.change(row.id, holder=DesktopHolder.AGENT, **NOBODY)
        await EventRepository(repository.session).append(row.tenant_id, *events)


def _taken(row: Sandbox, person: Person) -> ControlTaken:
    by = "through the API" if person.link is None else "in the desktop's page"
    return ControlTaken(
        sandbox_id=row.id,
        cause=Cause.REQUEST,
        actor=person.actor,
        reason=f"A person took control {by}.",
        link_id=person.link_id,
        name=person.name,
    )


def _ended(row: Sandbox, desktop: Desktop) -> list[ControlReturned]:
    """Describe the end of an earlier control whose time is over."""
    if desktop.holder == DesktopHolder.AGENT:
        return []
    reason = "The person's page was closed, or the link expired."
    if desktop.holder_link_id is None:
        reason = "The time of the control is over."
    return [_returned(row, desktop, cause=Cause.EXPIRY, actor=SERVER, reason=reason)]


def _returned(
    row: Sandbox, desktop: Desktop, *, cause: Cause, actor: Actor, reason: str
) -> ControlReturned:
    return ControlReturned(
        sandbox_id=row.id,
        cause=cause,
        actor=actor,
        reason=reason,
        link_id=desktop.holder_link_id,
        name=desktop.holder_name,
    )
