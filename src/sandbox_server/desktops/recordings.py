from datetime import timedelta
from http import HTTPMethod

from sandbox_client.models import DesktopRecordingRead, DesktopRecordingState
from sandbox_server.desktops.configuration import DesktopConfiguration
from sandbox_server.desktops.guest import DesktopGuest, GuestAnswer
from sandbox_server.desktops.service import Desktops
from sandbox_server.desktops.views import read_guest_list
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import DesktopNotRunning, PortNotOpen
from sandbox_server.domain.service_ports import DESKTOP_PORT
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.targets import PortTarget
from sandbox_server.sandboxes.service import WAIT, SandboxController
from sandbox_server.tools.service_proxy import ServiceProxy


class DesktopRecordings:
    """Recordings of a desktop. They are files of the sandbox, bounded by the service that makes them."""

    def __init__(
        self,
        controller: SandboxController,
        configuration: DesktopConfiguration,
        desktops: Desktops,
        guest: DesktopGuest,
        service_proxy: ServiceProxy,
    ) -> None:
        self._controller = controller
        self._configuration = configuration
        self._desktops = desktops
        self._guest = guest
        self._service_proxy = service_proxy

    async def start(
        self, caller: Caller, sandbox_id: str, *, fps: int, wait: timedelta = WAIT
    ) -> DesktopRecordingState:
        """Start recording; returns the current recording if there is one with these frames per second."""
        await self._controller.use(caller, sandbox_id, wait=wait)
        state = await self._desktops.update(caller, sandbox_id, {"fps": fps})
        if state.live is None or state.live.recording is None:
            raise DesktopNotRunning
        return state.live.recording

    async def stop(self, caller: Caller, sandbox_id: str) -> None:
        """Stop recording; no effect if nothing is recorded."""
        await self._desktops.update(caller, sandbox_id, {"fps": None})

    async def list_all(
        self, caller: Caller, sandbox_id: str, *, wait: timedelta = WAIT
    ) -> list[DesktopRecordingRead]:
        """List the recordings that have ended."""
        answer = await self._call(caller, sandbox_id, HTTPMethod.GET, "/recordings", wait)
        return read_guest_list(DesktopRecordingRead, answer)

    async def frame(
        self,
        caller: Caller,
        sandbox_id: str,
        recording_id: str,
        *,
        at: float,
        wait: timedelta = WAIT,
    ) -> bytes:
        """Return the picture that was shown at a second of the recording, as JPEG."""
        path = f"/recordings/{recording_id}/frames?at_s={at:g}"
        return (await self._call(caller, sandbox_id, HTTPMethod.GET, path, wait)).body

    async def delete(
        self, caller: Caller, sandbox_id: str, recording_id: str, *, wait: timedelta = WAIT
    ) -> None:
        await self._call(caller, sandbox_id, HTTPMethod.DELETE, f"/recordings/{recording_id}", wait)

    async def download(
        self,
        client: Client,
        caller: Caller,
        sandbox_id: str,
        recording_id: str,
        *,
        origin: PublicOrigin,
    ) -> None:
        """Forward the MP4, or the requested range of it."""
        used = await self._controller.use(caller, sandbox_id)
        request = ProxyRequest(
            client=client,
            caller=caller,
            target=PortTarget(sandbox_id, DESKTOP_PORT),
            origin=origin,
            path=f"/recordings/{recording_id}".encode(),
        )
        try:
            await self._service_proxy.forward(request, used.row, repeat=lambda: client)
        except PortNotOpen:
            raise DesktopNotRunning from None

    async def _call(
        self, caller: Caller, sandbox_id: str, method: str, path: str, wait: timedelta
    ) -> GuestAnswer:
        used = await self._controller.use(caller, sandbox_id, wait=wait)
        await self._configuration.ensure(used)
        return await self._guest.call(used, method, path)
