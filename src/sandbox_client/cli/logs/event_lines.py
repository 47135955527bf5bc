from collections.abc import Iterator

from sandbox_client.cli.output.output import Output
from sandbox_client.cli.output.times import format_time
from sandbox_client.console.escape import escape_controls
from sandbox_client.models import EventRead, LogGap, TimelineEntry

_WIDEST_TYPE = 24


def format_event(event: TimelineEntry, output: Output) -> str:
    """Format an event with its reason, cause and actor."""
    time = output.paint(format_time(event.at), "dim")
    sandbox = f"  {event.sandbox_id or '':20}" if isinstance(event, EventRead) else ""
    state = event.type.removeprefix("sandbox.")
    kind = output.paint_state(event.type.ljust(_WIDEST_TYPE), state)
    return f"{time}{sandbox}  {kind}  {describe_event(event)}"


def describe_event(event: TimelineEntry) -> str:
    text = " ".join(_parts(event))
    return escape_controls(text)


def _parts(event: TimelineEntry) -> Iterator[str]:
    if event.reason:
        yield event.reason
    by = [event.cause] if event.cause else []
    if event.actor is not None:
        by.append(" ".join(filter(None, (event.actor.kind, event.actor.id))))
    if by:
        yield f"({', '.join(by)})"


def format_gap(gap: LogGap) -> str:
    return f"[events between {gap.after} and {gap.oldest} were removed]"
