from collections.abc import Iterator

from sandbox_client.cli.output.output import Output
from sandbox_client.cli.output.times import say_time
from sandbox_client.console.escape import visible
from sandbox_client.models import EventRead, LogGap, TimelineEntry

_WIDEST_TYPE = 24


def line_of_event(event: TimelineEntry, output: Output) -> str:
    """Say what happened, why, and who did it."""
    time = output.paint(say_time(event.at), "dim")
    sandbox = f"  {event.sandbox_id or '':20}" if isinstance(event, EventRead) else ""
    state = event.type.removeprefix("sandbox.")
    kind = output.paint_state(event.type.ljust(_WIDEST_TYPE), state)
    return f"{time}{sandbox}  {kind}  {said_of(event)}"


def said_of(event: TimelineEntry) -> str:
    said = " ".join(_parts(event))
    return visible(said)


def _parts(event: TimelineEntry) -> Iterator[str]:
    if event.reason:
        yield event.reason
    by = [event.cause] if event.cause else []
    if event.actor is not None:
        by.append(" ".join(filter(None, (event.actor.kind, event.actor.id))))
    if by:
        yield f"({', '.join(by)})"


def line_of_gap(gap: LogGap) -> str:
    return f"[what happened between {gap.after} and {gap.oldest} is not kept any more]"
