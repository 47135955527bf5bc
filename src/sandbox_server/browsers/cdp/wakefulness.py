import asyncio
from contextlib import ExitStack
from datetime import timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.access import Caller
from sandbox_server.domain.state import ENDED, State
from sandbox_server.sandboxes.service import SandboxController

_TRUSTED = timedelta(seconds=0.5)
"""How long after traffic the sandbox is known to run: less than the shortest idle timeout."""

_LONGEST_COMMAND = timedelta(minutes=5)
"""How long commands without responses keep the browser awake: those of closed targets never get one."""

_POLL_EVERY = timedelta(seconds=30)


class SandboxWakefulness:
    """Keeps the sandbox of one connection awake while there is traffic, and resumes it for a message."""

    def __init__(self, controller: SandboxController, caller: Caller, row: Sandbox) -> None:
        self._controller = controller
        self._caller = caller
        self._row = row
        self._loop = asyncio.get_running_loop()
        self._trusted_until = 0.0
        self._is_paused = False
        self._hold = ExitStack()
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        return not self._is_paused and self._loop.time() < self._trusted_until

    def note_traffic(self) -> None:
        self._trusted_until = self._loop.time() + _TRUSTED.total_seconds()
        self._controller.activity.note(self._row)

    def note_pending(self, commands: int) -> None:
        if commands and self._expiry is None:
            self._hold.enter_context(self._controller.activity.hold(self._row))
            self._expiry = self._loop.call_later(_LONGEST_COMMAND.total_seconds(), self.release)
        elif not commands:
            self.release()

    def release(self) -> None:
        """Release the hold, so that the idle timeout can pause the sandbox."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
            self._hold.close()

    async def wake(self) -> None:
        await self._controller.use(self._caller, self._row.id)
        self._is_paused = False
        self.note_traffic()

    async def until_ended(self) -> Sandbox:
        """Wait until the sandbox has ended; notices meanwhile when it is paused."""
        with self._controller.watch(self._row.id) as follower:
            while True:
                row = await self._controller.get(self._caller, self._row.id)
                if row.state in ENDED:
                    return row
                self._is_paused = row.state is not State.RUNNING
                await follower.wait(longest=_POLL_EVERY)
