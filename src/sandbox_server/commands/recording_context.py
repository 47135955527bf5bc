from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.commands.recorder import Recorder
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.state import ENDED, State
from sandbox_server.sandboxes.activity import ActivityTracker
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.sandbox_access import SandboxAccess, UsableSandbox

_LOOK_AGAIN = timedelta(seconds=5)


@dataclass(frozen=True)
class Means:
    """What the recordings of a process have in common."""

    sessions: Sessions
    recorder: Recorder
    using: SandboxAccess
    changes: Changes
    awake: ActivityTracker

    async def wait_until_running(self, sandbox_id: str) -> UsableSandbox | None:
        """Wait until a sandbox runs, which nobody wakes for this; None is that it never will."""
        with self.changes.follow(sandbox_id) as follower:
            while True:
                async with without_transaction(self.sessions) as session:
                    found = await SandboxRepository(session).find(sandbox_id)
                if found is None or found[0].state in ENDED:
                    return None
                if found[0].state is State.RUNNING and found[0].access_sealed is not None:
                    return self.using.usable(found[0])
                await follower.wait(longest=_LOOK_AGAIN)
