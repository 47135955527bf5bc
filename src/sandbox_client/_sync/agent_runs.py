from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from sandbox_client import models
from sandbox_client._sync.concurrency import Callback, invoke
from sandbox_client._sync.streams import follow_stream
from sandbox_client._sync.transport import Transport
from sandbox_client.events import AgentEnded, AgentEvent
from sandbox_client.events.parsing import read_agent_event
from sandbox_client.protocol.calls import Call, call


class AgentRun:
    """A coding agent working on a prompt. It keeps running when nobody follows it."""

    def __init__(self, transport: Transport, record: models.AgentRunOutcome) -> None:
        self._transport = transport
        self.record = record
        """The last known state."""
        self.id = record.id
        self._path = f"/v1/sandboxes/{record.sandbox_id}/agent/runs/{record.id}"

    def refresh(self) -> models.AgentRunOutcome:
        """Fetch the current state; `result` is set after the end."""
        self.record = self._transport.fetch(models.AgentRunOutcome, call("GET", self._path))
        return self.record

    def follow(self, *, after: int | None = None) -> Generator[AgentEvent, None, None]:
        """Stream the agent's messages from the start, or after an event's `id`; AgentEnded is the last event."""
        return self._events(call("GET", self._events_path), after=after)

    def wait(self) -> models.AgentRunOutcome:
        """Wait until the run ends."""
        if self.record.ended_at is None:
            from_now_on = call("GET", self._events_path, query={"tail": 0})
            with closing(self._events(from_now_on)) as events:
                for _ in events:
                    pass
            self.refresh()
        return self.record

    def interrupt(self) -> None:
        """Interrupt the agent; the run ends with a result."""
        self._transport.send(call("POST", f"{self._path}/interrupt"))

    @property
    def _events_path(self) -> str:
        return f"{self._path}/events"

    def _events(
        self, request: Call, *, after: int | None = None
    ) -> Generator[AgentEvent, None, None]:
        return follow_stream(
            self._transport,
            request,
            read_agent_event,
            after=after,
            is_last=lambda event: isinstance(event, AgentEnded),
        )


def forward_events(run: AgentRun, on_event: Callback[[AgentEvent]]) -> models.AgentRunOutcome:
    """Call back with the events as they arrive; return the outcome."""
    with closing(run.follow()) as events:
        for event in events:
            invoke(on_event, event)
    return run.refresh()
