from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.access import Caller
from sandbox_server.domain.requests import Idempotency, SandboxRequest
from sandbox_server.domain.state import State
from sandbox_server.providers.e2b.inside import Inside
from sandbox_server.providers.protocol.provider import Finished
from sandbox_server.sandboxes.answers import require_running
from sandbox_server.sandboxes.service import SandboxController

PATIENCE = timedelta(seconds=55)
"""How long to wait for a sandbox; clients commonly give up after a minute."""


class Work:
    """Use of sandboxes by calls that answer when what they ask for is done, or refuse."""

    def __init__(self, controller: SandboxController, *, patience: timedelta = PATIENCE) -> None:
        self._controller = controller
        self._patience = patience

    async def create(
        self, caller: Caller, wanted: SandboxRequest, *, idempotency: Idempotency | None
    ) -> Sandbox:
        """Make a sandbox that runs; one that does not in time is nobody's, unless its caller can ask for it again."""
        row = await self._controller.create(
            caller, wanted, idempotency=idempotency, wait=self._patience
        )
        if idempotency is None and row.state is not State.RUNNING:
            await self._controller.delete(caller, row.id, wait=timedelta(0))
        return require_running(row)

    async def connect(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """Have a sandbox run."""
        return require_running(
            await self._controller.connect(caller, sandbox_id, wait=self._patience)
        )

    async def wake(self, caller: Caller, sandbox_id: str) -> None:
        """Have a sandbox awake for requests that come next."""
        await self._controller.use(caller, sandbox_id, wait=self._patience)

    async def start_command(self, caller: Caller, sandbox_id: str, command: str) -> None:
        async with self._inside(caller, sandbox_id) as inside:
            await inside.start_command(command)

    async def run_command(
        self, caller: Caller, sandbox_id: str, command: str, *, timeout: timedelta
    ) -> Finished:
        async with self._inside(caller, sandbox_id) as inside:
            return await inside.run_command(command, timeout=timeout)

    async def read_file(self, caller: Caller, sandbox_id: str, path: str, *, limit: int) -> bytes:
        async with self._inside(caller, sandbox_id) as inside:
            return await inside.read_file(path, limit=limit)

    async def write_file(self, caller: Caller, sandbox_id: str, path: str, content: bytes) -> None:
        async with self._inside(caller, sandbox_id) as inside:
            await inside.write_file(path, content)

    @asynccontextmanager
    async def _inside(self, caller: Caller, sandbox_id: str) -> AsyncIterator[Inside]:
        """Reach into a sandbox, which is not idle for as long as that lasts."""
        used = await self._controller.use(caller, sandbox_id, wait=self._patience)
        with self._controller.activity.hold(used.row):
            yield used.backend.inside(used.access)
