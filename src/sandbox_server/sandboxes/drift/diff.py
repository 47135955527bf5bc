"""What a provider's list of sandboxes says against the rows that were read before it was asked."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandbox_server.domain.state import State
from sandbox_server.providers.protocol.provider import ProviderSandbox, ReportedState

# In all others somebody is at it, who asks the provider himself.
_SETTLED = {State.RUNNING: ReportedState.RUNNING, State.PAUSED: ReportedState.PAUSED}


@dataclass(frozen=True)
class RecordedSandbox:
    """What of a row is compared; it has not ended."""

    id: str
    state: State
    generation: int
    backend_sandbox_id: str | None


@dataclass(kw_only=True)
class Diff:
    doubtful: list[RecordedSandbox] = field(default_factory=list)
    """Rows that say something else, if they still do."""
    doubles: list[ProviderSandbox] = field(default_factory=list)
    """Those beside the one that their row has."""
    unknown: list[ProviderSandbox] = field(default_factory=list)
    """Those that no row was about."""


def diff(rows: Iterable[RecordedSandbox], listed: Sequence[ProviderSandbox]) -> Diff:
    """Find what has to be looked at more closely; the list may be old by the time it arrives."""
    differences = Diff()
    by_id = defaultdict(list)
    for one in listed:
        by_id[one.sandbox_id].append(one)
    for row in rows:
        own = by_id.pop(row.id, [])
        expected = _SETTLED.get(row.state)
        if expected is None:
            continue
        if not any(one.id == row.backend_sandbox_id and one.state is expected for one in own):
            differences.doubtful.append(row)
        else:
            differences.doubles += [one for one in own if one.id != row.backend_sandbox_id]
    differences.unknown = [one for several in by_id.values() for one in several]
    return differences
