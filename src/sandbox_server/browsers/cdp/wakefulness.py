import asyncio
from contextlib import ExitStack
from datetime import timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.access import Caller
from sandbox_server.domain.state import ENDED, State
from sandbox_server.sandboxes.service import SandboxController

_TRUSTED_S = 0.5
"""How long after traffic the sandbox is known to run: less than the shortest idle timeout."""

_LONGEST_COMMAND_S = 300.0
"""How long commands without responses keep the browser awake: those of closed targets never get one."""

_HOLD_S = 0.2
"""How long a hold lasts at least; less than the shortest idle timeout."""

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
        self._pending = 0
        self._pending_since = 0.0
        self._hold = ExitStack()
        self._look: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        return not self._is_paused and self._loop.time() < self._trusted_until

    def note_traffic(self) -> None:
        self._trusted_until = self._loop.time() + _TRUSTED_S
        self._controller.activity.note(self._row)

    def note_pending(self, commands: int) -> None:
        if commands > self._pending:
            self._pending_since = self._loop.time()
        self._pending = commands
        if commands and self._look is None:
            self._hold.enter_context(self._controller.activity.hold(self._row))
            self._look = self._loop.call_later(_HOLD_S, self._look_again)

    def release(self) -> None:
        """Release the hold, so that the idle timeout can pause the sandbox."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
            self._hold.close()

    def _look_again(self) -> None:
        # A hold per command would cost more than the rest of the proxy.
        if self._pending and self._loop.time() - self._pending_since < _LONGEST_COMMAND_S:
            self._look = self._loop.call_later(_HOLD_S, self._look_again)
        else:
            self.release()

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
