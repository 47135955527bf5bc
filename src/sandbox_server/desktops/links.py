from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sandbox_server.access.secrets import hash_of
from sandbox_server.access.tickets import Tickets
from sandbox_server.db.models import DesktopLink
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.desktops.control import DesktopControl, Person
from sandbox_server.desktops.repository import DesktopRepository, ValidLink
from sandbox_server.domain.access import Caller, TicketScope
from sandbox_server.domain.computers.desktops import DesktopMode, DesktopSettings
from sandbox_server.domain.errors import DesktopNotStreamed, InvalidTransition
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import ENDED, State
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.sandboxes.service import SandboxController

_SCOPES = {
    DesktopMode.VIEW: TicketScope.DESKTOP_VIEW,
    DesktopMode.CONTROL: TicketScope.DESKTOP_CONTROL,
}


@dataclass(frozen=True, kw_only=True)
class NewLink:
    """A new link, with the URL that contains its secret."""

    link: ValidLink
    url: str = field(repr=False)


class DesktopLinks:
    """Creates and revokes links to the page of a desktop: tickets for that page alone."""

    def __init__(
        self,
        sessions: Sessions,
        tickets: Tickets,
        controller: SandboxController,
        control: DesktopControl,
        public_address: PublicAddress,
    ) -> None:
        self._sessions = sessions
        self._tickets = tickets
        self._controller = controller
        self._control = control
        self._public_address = public_address

    async def create(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        mode: DesktopMode,
        ttl: timedelta,
        name: str | None = None,
    ) -> NewLink:
        row = await self._controller.get(caller, sandbox_id)
        if row.state in ENDED:
            raise InvalidTransition(row.state, State.RUNNING)
        if not DesktopSettings.of(row.desktop).stream:
            raise DesktopNotStreamed
        issued = await self._tickets.issue(
            caller, scope=_SCOPES[mode], sandbox_id=sandbox_id, ttl=ttl
        )
        link = DesktopLink(
            id=new_id(),
            sandbox_id=sandbox_id,
            ticket_hash=hash_of(issued.secret),
            mode=mode,
            name=name,
        )
        async with self._sessions.begin() as session:
            created_at = await DesktopRepository(session).add_link(link)
        valid = ValidLink(
            id=link.id,
            sandbox_id=sandbox_id,
            mode=mode,
            name=name,
            created_at=created_at,
            expires_at=issued.expires_at,
        )
        url = f"{self._public_address.api_url}/desktop/{sandbox_id}?ticket={issued.secret}"
        return NewLink(link=valid, url=url)

    async def list_all(self, caller: Caller, sandbox_id: str) -> Sequence[ValidLink]:
        """List the valid links of a desktop, newest first."""
        await self._controller.get(caller, sandbox_id)
        async with without_transaction(self._sessions) as session:
            return await DesktopRepository(session).list_links(sandbox_id)

    async def revoke(self, caller: Caller, sandbox_id: str, link_id: str) -> None:
        """Revoke a link: its pages are disconnected, and its control ends."""
        row = await self._controller.get(caller, sandbox_id)
        async with self._sessions.begin() as session:
            await DesktopRepository(session).remove_link(sandbox_id, link_id)
        await self._control.give_back(
            row, Person(actor=caller.actor), reason="The person's link was revoked.", of=link_id
        )
