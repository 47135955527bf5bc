from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.steps import ProviderState
from sandbox_server.providers.protocol.provider import ProviderSandbox

_AT_REST = frozenset({State.QUEUED, State.RUNNING, State.PAUSED})

# What a provider has of a sandbox in each state, until its answer to what was asked of it last.
_BELIEVED = {
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
    """A sandbox's row at an instant, with what its provider has, as far as that is known."""

    row: Sandbox
    now: datetime
    provider_state: ProviderState
    is_own: bool
    """This process has let the row become what it is, and nobody has acted on it since."""
    found: ProviderSandbox | None = None
    maybe_requested: bool = False
    """Somebody may have asked the provider for the next act before."""
    exhausted: bool = False
    """It was asked for that so often in vain that a lost answer counts as a refusal."""

    @property
    def runs_since(self) -> datetime:
        """Tell since when it runs at its provider once that has been asked to run it, or from a moment before."""
        if self.row.state is State.STARTING and self.row.tried_at is not None:
            return self.row.tried_at
        if self.provider_state is ProviderState.RUNNING and self.found is not None:
            return min(self.found.started_at, self.now)
        return self.now

    @property
    def found_id(self) -> dict[str, Any]:
        """Give what its row is to know of what was found."""
        return {} if self.found is None else {"backend_sandbox_id": self.found.id}

    @classmethod
    def at_own(cls, row: Sandbox, now: datetime) -> Self:
        return cls(row=row, now=now, provider_state=_BELIEVED[row.state], is_own=True)

    @classmethod
    def at_found(cls, row: Sandbox, now: datetime, *, in_doubt: bool = False) -> Self:
        """Look at a row as somebody left it: what it was about to become it may be by now."""
        return cls(
            row=row,
            now=now,
            provider_state=ProviderState.UNKNOWN if in_doubt else _known(row),
            is_own=False,
        )

    def with_found(self, found: ProviderSandbox | None) -> Self:
        """Look again with the provider's own word."""
        provider_state = ProviderState.ABSENT if found is None else ProviderState(found.state.value)
        return replace(
            self, provider_state=provider_state, found=found, is_own=False, maybe_requested=True
        )


def _known(row: Sandbox) -> ProviderState:
    untried = row.state is State.STARTING and row.tried_at is None
    if untried or row.state in _AT_REST:
        return _BELIEVED[row.state]
    if row.target is Target.GONE and row.state not in ENDED:
        return ProviderState.RUNNING  # killing it tells whether it was
    if (row.state, row.target) == (State.PAUSING, Target.PAUSED):
        return ProviderState.RUNNING  # so does pausing it
    return ProviderState.UNKNOWN
