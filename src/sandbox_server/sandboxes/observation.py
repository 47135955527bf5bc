from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.steps import Truth
from sandbox_server.providers.protocol.provider import ProviderSandbox

_AT_REST = frozenset({State.QUEUED, State.RUNNING, State.PAUSED})

# What a provider has of a sandbox in each state, until its answer to what was asked of it last.
_BELIEVED = {
    State.QUEUED: Truth.ABSENT,
    State.STARTING: Truth.ABSENT,
    State.RUNNING: Truth.RUNNING,
    State.PAUSING: Truth.RUNNING,
    State.PAUSED: Truth.PAUSED,
    State.RESUMING: Truth.PAUSED,
    State.STOPPING: Truth.RUNNING,
    State.STOPPED: Truth.ABSENT,
    State.FAILED: Truth.ABSENT,
}


@dataclass(frozen=True, kw_only=True)
class Look:
    """A sandbox's row at an instant, with what its provider has, as far as that is known."""

    row: Sandbox
    now: datetime
    truth: Truth
    ours: bool
    """This process has let the row become what it is, and nobody has acted on it since."""
    found: ProviderSandbox | None = None
    doubted: bool = False
    """Somebody may have asked the provider for the next act before."""
    exhausted: bool = False
    """It was asked for that so often in vain that a lost answer counts as a refusal."""

    @property
    def runs_since(self) -> datetime:
        """Tell since when it runs at its provider once that has been asked to run it, or from a moment before."""
        if self.row.state is State.STARTING and self.row.tried_at is not None:
            return self.row.tried_at
        if self.truth is Truth.RUNNING and self.found is not None:
            return min(self.found.started_at, self.now)
        return self.now

    @property
    def found_id(self) -> dict[str, Any]:
        """Give what its row is to know of what was found."""
        return {} if self.found is None else {"backend_sandbox_id": self.found.id}

    @classmethod
    def at_own(cls, row: Sandbox, now: datetime) -> Self:
        return cls(row=row, now=now, truth=_BELIEVED[row.state], ours=True)

    @classmethod
    def at_found(cls, row: Sandbox, now: datetime, *, in_doubt: bool = False) -> Self:
        """Look at a row as somebody left it: what it was about to become it may be by now."""
        return cls(row=row, now=now, truth=Truth.UNKNOWN if in_doubt else _known(row), ours=False)

    def told(self, found: ProviderSandbox | None) -> Self:
        """Look again with the provider's own word."""
        truth = Truth.ABSENT if found is None else Truth(found.state.value)
        return replace(self, truth=truth, found=found, ours=False, doubted=True)


def _known(row: Sandbox) -> Truth:
    untried = row.state is State.STARTING and row.tried_at is None
    if untried or row.state in _AT_REST:
        return _BELIEVED[row.state]
    if row.target is Target.GONE and row.state not in ENDED:
        return Truth.RUNNING  # killing it tells whether it was
    if (row.state, row.target) == (State.PAUSING, Target.PAUSED):
        return Truth.RUNNING  # so does pausing it
    return Truth.UNKNOWN
