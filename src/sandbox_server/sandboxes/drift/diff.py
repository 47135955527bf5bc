"""Differences between a provider's list of sandboxes and the rows that were read before it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandbox_server.domain.state import State
from sandbox_server.providers.protocol.provider import ProviderSandbox, ReportedState

# In every other state a job is working on the row, and asks the provider itself.
_STABLE = {State.RUNNING: ReportedState.RUNNING, State.PAUSED: ReportedState.PAUSED}


@dataclass(frozen=True)
class RecordedSandbox:
    """The compared columns of a row that has not ended."""

    id: str
    state: State
    generation: int
    backend_sandbox_id: str | None


@dataclass(kw_only=True)
class Diff:
    doubtful: list[RecordedSandbox] = field(default_factory=list)
    """Rows that differ from the list; they may have changed since."""
    duplicates: list[ProviderSandbox] = field(default_factory=list)
    """Further sandboxes with the id of a row that names another one."""
    unknown: list[ProviderSandbox] = field(default_factory=list)
    """Sandboxes without a row."""


def diff(rows: Iterable[RecordedSandbox], listed: Sequence[ProviderSandbox]) -> Diff:
    """Find candidates for a correction; the list may be outdated when it arrives."""
    differences = Diff()
    by_id = defaultdict(list)
    for one in listed:
        by_id[one.sandbox_id].append(one)
    for row in rows:
        own = by_id.pop(row.id, [])
        expected = _STABLE.get(row.state)
        if expected is None:
            continue
        if not any(
            sandbox.id == row.backend_sandbox_id and sandbox.state is expected for sandbox in own
        ):
            differences.doubtful.append(row)
        else:
            differences.duplicates += [
                sandbox for sandbox in own if sandbox.id != row.backend_sandbox_id
            ]
    differences.unknown = [sandbox for several in by_id.values() for sandbox in several]
    return differences
