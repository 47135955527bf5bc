from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.access import Caller
from sandbox_server.files.watching import FileWatch
from sandbox_server.providers.e2b.files import Files
from sandbox_server.providers.e2b.inside import Inside
from sandbox_server.providers.e2b.transfers import Transfers
from sandbox_server.sandboxes.service import SandboxController


@dataclass(frozen=True, kw_only=True)
class FileLocation:
    """A path in a sandbox, the user to access it as, and how long to wait for the sandbox to resume."""

    sandbox_id: str
    path: str
    user: str | None
    wait: timedelta


@dataclass(frozen=True, kw_only=True)
class FileSession:
    """Access to the files of a sandbox as one of its users."""

    row: Sandbox
    user: str | None
    files: Files
    transfers: Transfers
    inside: Inside


class FileAccess:
    """Opens sandboxes for file operations, which count as activity."""

    def __init__(self, controller: SandboxController) -> None:
        self._controller = controller

    @asynccontextmanager
    async def open(self, caller: Caller, location: FileLocation) -> AsyncIterator[FileSession]:
        """Keep a sandbox awake until the block ends."""
        used = await self._controller.use(caller, location.sandbox_id, wait=location.wait)
        backend, access = used.backend, used.access
        with self._controller.activity.hold(used.row):
            yield FileSession(
                row=used.row,
                user=location.user,
                files=backend.files(access, user=location.user),
                transfers=backend.transfers(access, user=location.user),
                inside=backend.inside(access),
            )

    async def watch(
        self,
        caller: Caller,
        location: FileLocation,
        *,
        recursive: bool,
        cut: Callable[[], None] | None = None,
    ) -> FileWatch:
        """Watch a directory from now on. Watching does not count as activity."""
        used = await self._controller.use(caller, location.sandbox_id, wait=location.wait)
        files = used.backend.files(used.access, user=location.user)
        changes = await files.watch(location.path, recursive=recursive)

        async def leave() -> str:
            row = await self._controller.until_left(caller, location.sandbox_id)
            return f"The sandbox is {row.state}: {row.state_reason}"

        return FileWatch(changes, leave, cut=cut)
