from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sandbox_client import models
from sandbox_client._sync.concurrency import Callback, invoke
from sandbox_client._sync.streams import follow_stream
from sandbox_client._sync.transport import Transport
from sandbox_client.events import AgentEnded, AgentEvent
from sandbox_client.events.parsing import read_agent_event
from sandbox_client.protocol.calls import Call, call

Outcome = TypeVar(
    "Outcome", bound=models.CommandOutcome | models.CodeOutcome | models.AgentRunOutcome
)
Event = TypeVar("Event")


@dataclass(frozen=True)
class RunKind(Generic[Outcome, Event]):
    """Where runs of a kind are in the API, and how their events are read."""

    outcome: type[Outcome]
    collection: str
    events: str
    read_event: Callable[[str, str], Event | None]
    last_event: type[Any]


class Run(Generic[Outcome, Event]):
    """A command, an execution of code or an agent's run. It keeps running when nobody follows it."""

    _kind: RunKind[Outcome, Event]

    def __init__(self, transport: Transport, record: Outcome) -> None:
        self._transport = transport
        self.record = record
        """The last known state."""
        self.id = record.id
        self._path = f"/v1/sandboxes/{record.sandbox_id}/{self._kind.collection}/{record.id}"

    def refresh(self) -> Outcome:
        """Fetch the current state and what is known of the outcome."""
        self.record = self._transport.fetch(self._kind.outcome, call("GET", self._path))
        return self.record

    def follow(self, *, after: int | None = None) -> Generator[Event, None, None]:
        """Stream the events from the start, or after an event's `id`, until the end, which is the last event."""
        return self._events(call("GET", self._events_path), after=after)

    def wait(self) -> Outcome:
        """Wait until it ends."""
        if self.record.ended_at is None:
            from_now_on = call("GET", self._events_path, query={"tail": 0})
            with closing(self._events(from_now_on)) as events:
                for _ in events:
                    pass
            self.refresh()
        return self.record

    @property
    def _events_path(self) -> str:
        return f"{self._path}/{self._kind.events}"

    def _events(self, request: Call, *, after: int | None = None) -> Generator[Event, None, None]:
        return follow_stream(
            self._transport,
            request,
            self._kind.read_event,
            after=after,
            is_last=lambda event: isinstance(event, self._kind.last_event),
        )


class AgentRun(Run[models.AgentRunOutcome, AgentEvent]):
    """A coding agent working on a prompt. It keeps running when nobody follows it."""

    _kind = RunKind(models.AgentRunOutcome, "agent/runs", "events", read_agent_event, AgentEnded)

    def interrupt(self) -> None:
        """Interrupt the agent; the run ends with a result."""
        self._transport.send(call("POST", f"{self._path}/interrupt"))


def forward_events(run: AgentRun, on_event: Callback[[AgentEvent]]) -> models.AgentRunOutcome:
    """Call back with the events as they arrive; return the outcome."""
    with closing(run.follow()) as events:
        for event in events:
            invoke(on_event, event)
    return run.refresh()
