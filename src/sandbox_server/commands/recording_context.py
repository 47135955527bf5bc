from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.commands.recorder import Recorder
from sandbox_server.db.models import Command
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.agents import exit_code_of
from sandbox_server.domain.errors import BackendError, SandboxError
from sandbox_server.domain.state import ENDED, State
from sandbox_server.sandboxes.activity import ActivityTracker
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.sandbox_access import SandboxAccess, UsableSandbox

_MAX_LAST_LINE = 512 * 1024
_POLL_INTERVAL = timedelta(seconds=5)


@dataclass(frozen=True)
class RecordingContext:
    """Dependencies that the recordings of a process share."""

    sessions: Sessions
    recorder: Recorder
    sandbox_access: SandboxAccess
    changes: Changes
    activity: ActivityTracker

    async def find_state(self, sandbox_id: str) -> State | None:
        """Find the state of a sandbox; None if its row was removed."""
        async with without_transaction(self.sessions) as session:
            found = await SandboxRepository(session).find(sandbox_id)
        return None if found is None else found[0].state

    async def wait_until_running(self, sandbox_id: str) -> UsableSandbox | None:
        """Wait until a sandbox runs, without resuming it; None if it has ended."""
        with self.changes.follow(sandbox_id) as follower:
            while True:
                async with without_transaction(self.sessions) as session:
                    found = await SandboxRepository(session).find(sandbox_id)
                if found is None or found[0].state in ENDED:
                    return None
                if found[0].state is State.RUNNING and found[0].access_sealed is not None:
                    return self.sandbox_access.usable(found[0])
                await follower.wait(longest=_POLL_INTERVAL)


async def find_last_line(used: UsableSandbox, run: Command) -> bytes:
    """Read the result of an agent's run from its sandbox, if it is there."""
    path = (run.agent or {}).get("kept_at")
    if path is None:
        return b""
    try:
        kept = await used.backend.inside(used.access).read_file(path, limit=_MAX_LAST_LINE)
    except BackendError:
        raise
    except SandboxError:  # missing or unreadable
        return b""
    return kept if exit_code_of(kept) is not None else b""
