from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.steps import ProviderState
from sandbox_server.providers.protocol.provider import ProviderSandbox

_STABLE = frozenset({State.QUEUED, State.RUNNING, State.PAUSED})

# The state at the provider before the provider has answered the request that belongs to the row's state.
_EXPECTED = {
    State.QUEUED: ProviderState.ABSENT,
    State.STARTING: ProviderState.ABSENT,
    State.RUNNING: ProviderState.RUNNING,
    State.PAUSING: ProviderState.RUNNING,
    State.PAUSED: ProviderState.PAUSED,
    State.RESUMING: ProviderState.PAUSED,
    State.STOPPING: ProviderState.RUNNING,
    State.STOPPED: ProviderState.ABSENT,
    State.FAILED: ProviderState.ABSENT,
}


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A sandbox's row at an instant, with its state at the provider as far as that is known."""

    row: Sandbox
    now: datetime
    provider_state: ProviderState
    is_own: bool
    """This process committed the row as it is, and no other has acted on it since."""
    found: ProviderSandbox | None = None
    maybe_requested: bool = False
    """The next step may already have been requested from the provider."""
    exhausted: bool = False
    """The step was retried so often that a lost answer counts as a refusal."""

    @classmethod
    def of_commit(cls, row: Sandbox, now: datetime) -> Self:
        """Observe a row that this process has just committed."""
        return cls(row=row, now=now, provider_state=_EXPECTED[row.state], is_own=True)

    @classmethod
    def of_read(cls, row: Sandbox, now: datetime, *, in_doubt: bool = False) -> Self:
        """Observe a row as another process may have left it, in the middle of a step."""
        state = ProviderState.UNKNOWN if in_doubt else _known(row)
        return cls(row=row, now=now, provider_state=state, is_own=False)

    def with_found(self, found: ProviderSandbox | None) -> Self:
        """Add the provider's answer."""
        state = ProviderState.ABSENT if found is None else ProviderState(found.state.value)
        return replace(self, provider_state=state, found=found, is_own=False, maybe_requested=True)

    @property
    def runs_since(self) -> datetime:
        """Since when the sandbox runs at its provider, or an instant shortly before."""
        if self.row.state is State.STARTING and self.row.tried_at is not None:
            return self.row.tried_at
        if self.provider_state is ProviderState.RUNNING and self.found is not None:
            return min(self.found.started_at, self.now)
        return self.now

    @property
    def found_id(self) -> dict[str, Any]:
        """The row's columns that the provider's answer sets."""
        return {} if self.found is None else {"backend_sandbox_id": self.found.id}


def _known(row: Sandbox) -> ProviderState:
    untried = row.state is State.STARTING and row.tried_at is None
    if untried or row.state in _STABLE:
        return _EXPECTED[row.state]
    if row.target is Target.GONE and row.state not in ENDED:
        return ProviderState.RUNNING  # the answer to the kill tells whether it ran
    if (row.state, row.target) == (State.PAUSING, Target.PAUSED):
        return ProviderState.RUNNING  # the answer to the pause tells whether it ran
    return ProviderState.UNKNOWN
