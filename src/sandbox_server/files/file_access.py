from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.access import Caller
from sandbox_server.files.watching import Watching
from sandbox_server.providers.e2b.files import Files
from sandbox_server.providers.e2b.inside import Inside
from sandbox_server.providers.e2b.transfers import Transfers
from sandbox_server.sandboxes.service import SandboxController


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where in which sandbox something is wanted, as whom, and how long to wait until it is awake."""

    sandbox_id: str
    path: str
    user: str | None
    wait: timedelta


@dataclass(frozen=True, kw_only=True)
class Hands:
    """All that it takes to work on the files of a sandbox as one of its users."""

    row: Sandbox
    user: str | None
    files: Files
    transfers: Transfers
    inside: Inside


class WayIn:
    """Reaches into sandboxes, which are not idle for as long as that lasts."""

    def __init__(self, controller: SandboxController) -> None:
        self._controller = controller

    @asynccontextmanager
    async def into(self, caller: Caller, place: Place) -> AsyncIterator[Hands]:
        """Have a sandbox awake until the block ends."""
        used = await self._controller.use(caller, place.sandbox_id, wait=place.wait)
        backend, access = used.backend, used.access
        with self._controller.activity.hold(used.row):
            yield Hands(
                row=used.row,
                user=place.user,
                files=backend.files(access, user=place.user),
                transfers=backend.transfers(access, user=place.user),
                inside=backend.inside(access),
            )

    async def watch(
        self,
        caller: Caller,
        place: Place,
        *,
        recursive: bool,
        cut: Callable[[], None] | None = None,
    ) -> Watching:
        """Follow what happens below a directory from now on; that is no use of the sandbox."""
        used = await self._controller.use(caller, place.sandbox_id, wait=place.wait)
        files = used.backend.files(used.access, user=place.user)
        changes = await files.watch(place.path, recursive=recursive)

        async def leave() -> str:
            row = await self._controller.until_left(caller, place.sandbox_id)
            return f"The sandbox is {row.state}: {row.state_reason}"

        return Watching(changes, leave, cut=cut)
