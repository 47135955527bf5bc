import asyncio
from contextlib import suppress
from datetime import timedelta

from sandbox_server.db.session import OUTAGES, Sessions, without_transaction
from sandbox_server.desktops.configuration import DesktopConfiguration, Wanted
from sandbox_server.desktops.control import Person
from sandbox_server.desktops.repository import DesktopRepository, ValidLink
from sandbox_server.desktops.service import Desktops, DesktopState
from sandbox_server.domain.access import TicketCaller
from sandbox_server.domain.computers.desktops import DesktopHolder, DesktopMode
from sandbox_server.domain.errors import (
    DesktopControlled,
    DesktopNotRunning,
    DesktopNotStreamed,
    PortNotOpen,
    TicketRefused,
    Unauthenticated,
)
from sandbox_server.domain.events import Actor
from sandbox_server.domain.service_ports import DESKTOP_PORT
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.targets import PortTarget
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.tools.service_proxy import ServiceProxy


class DesktopViewers:
    """What the page of a link does: watch, take control, return it.

    A viewer's connection is a tunnel to the sandbox, with the backpressure of TCP in both directions. Watching neither
    resumes a sandbox nor keeps it awake; control does both.
    """

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        configuration: DesktopConfiguration,
        desktops: Desktops,
        service_proxy: ServiceProxy,
        *,
        grace: timedelta,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._configuration = configuration
        self._desktops = desktops
        self._service_proxy = service_proxy
        self._grace = grace

    async def find_link(self, caller: TicketCaller) -> ValidLink:
        """Find the link that the caller came by."""
        async with without_transaction(self._sessions) as session:
            link = await DesktopRepository(session).find_link(caller.secret_hash)
        if link is None:
            raise Unauthenticated("The link has expired or was revoked.")
        return link

    async def get(self, caller: TicketCaller, link: ValidLink) -> DesktopState:
        """Get the state of the desktop without a request to the sandbox: pages ask every few seconds."""
        await self._controller.get(caller, link.sandbox_id)
        return DesktopState(wanted=await self._configuration.read(link.sandbox_id), live=None)

    async def set_holder(
        self, caller: TicketCaller, link: ValidLink, holder: DesktopHolder
    ) -> DesktopState:
        """Give control to the person of the link, or return it to the agent."""
        if link.mode is not DesktopMode.CONTROL:
            raise TicketRefused("This link is for watching only.")
        person = Person(actor=Actor(kind="visitor", id=link.id), link=link)
        return await self._desktops.set_holder(
            caller, link.sandbox_id, holder, person, lease=self._grace
        )

    async def connect(
        self,
        client: Client,
        caller: TicketCaller,
        link: ValidLink,
        mode: DesktopMode,
        *,
        origin: PublicOrigin,
    ) -> None:
        """Connect a viewer; ends with the link, and if it is the one in control, with the control."""
        wanted = await self._configuration.read(link.sandbox_id)
        _require_allowed(wanted, link, mode)
        controls = mode is DesktopMode.CONTROL
        if controls:
            used = await self._controller.use(caller, link.sandbox_id)
        else:
            used = await self._controller.look_into(caller, link.sandbox_id)
        await self._configuration.ensure(used)
        client.scope["query_string"] = f"mode={mode}".encode()
        request = ProxyRequest(
            client=client,
            caller=caller,
            target=PortTarget(link.sandbox_id, DESKTOP_PORT),
            origin=origin,
            path=b"/vnc",
            counts_as_activity=controls,
            sends_close_frame=True,
        )
        guard = asyncio.create_task(self._guard(client, link, mode))
        try:
            await self._service_proxy.forward(request, used.row, repeat=lambda: client)
        except PortNotOpen:
            raise DesktopNotRunning from None
        finally:
            guard.cancel()

    async def _guard(self, client: Client, link: ValidLink, mode: DesktopMode) -> None:
        """Prolong the control while the connection lasts, and close it when it is no longer allowed."""
        with self._controller.watch(link.sandbox_id) as changes:
            while True:
                with suppress(*OUTAGES):
                    if not await self._may_stay(link, mode):
                        client.connection.abort()
                        return
                await changes.wait(longest=self._grace / 3)

    async def _may_stay(self, link: ValidLink, mode: DesktopMode) -> bool:
        if mode is DesktopMode.CONTROL:
            async with self._sessions.begin() as session:
                repository = DesktopRepository(session)
                renewed = await repository.renew(
                    link.sandbox_id, link_id=link.id, lease=self._grace
                )
            if renewed is None:
                return False
        wanted = await self._configuration.read(link.sandbox_id)
        return wanted.settings.stream


def _require_allowed(wanted: Wanted, link: ValidLink, mode: DesktopMode) -> None:
    if not wanted.settings.stream:
        raise DesktopNotStreamed
    if mode is DesktopMode.VIEW:
        return
    if link.mode is not DesktopMode.CONTROL:
        raise TicketRefused("This link is for watching only.")
    desktop = wanted.desktop
    if desktop is None or not wanted.is_held:
        raise TicketRefused("Take control first: the agent has it.")
    if desktop.holder_link_id != link.id:
        raise DesktopControlled(by=desktop.holder_name)
