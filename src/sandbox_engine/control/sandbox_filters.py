"""Filters of sandbox lists."""

from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote_plus

from sandbox_engine.records.sandbox import SandboxRecord, State
from sandbox_engine.system.errors import InvalidRequest


@dataclass(frozen=True)
class Query:
    """Filter and order of a sandbox list."""

    states: frozenset[State] = frozenset((State.RUNNING, State.PAUSED))
    metadata: dict[str, str] = field(default_factory=dict)
    template: str | None = None
    started_after: datetime | None = None
    ascending: bool = False

    def matches(self, record: SandboxRecord) -> bool:
        return (
            record.state in self.states
            and self.metadata.items() <= (record.metadata or {}).items()
            and self.template in (None, record.template)
            and (self.started_after is None or record.started_at >= self.started_after)
        )


def parse_states(text: str | None) -> frozenset[State]:
    """Parse `running,paused`; the default is both."""
    if not text:
        return frozenset((State.RUNNING, State.PAUSED))
    try:
        states = frozenset(State(name) for name in text.split(","))
    except ValueError:
        raise InvalidRequest("state: expected running or paused, separated by commas") from None
    if not states <= {State.RUNNING, State.PAUSED}:
        raise InvalidRequest("state: expected running or paused, separated by commas")
    return states


def parse_metadata(text: str | None) -> dict[str, str]:
    """Parse `k=v&k=v`, URL-encoded as a whole and again, by the SDK, in each part."""
    if not text:
        return {}
    pairs = [pair.split("=") for pair in unquote_plus(text).split("&")]
    if any(len(pair) != 2 for pair in pairs):  # noqa: PLR2004
        raise InvalidRequest("Error parsing metadata: expected key=value pairs joined by &")
    return {unquote_plus(key): unquote_plus(value) for key, value in pairs}
