from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from sandbox_client import models
from sandbox_client._async.concurrency import Callback, invoke
from sandbox_client._async.streams import follow_stream
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.events import AgentEnded, AgentEvent
from sandbox_client.events.parsing import read_agent_event
from sandbox_client.protocol.calls import Call, call


class AsyncAgentRun:
    """A coding agent working on a prompt. It keeps running when nobody follows it."""

    def __init__(self, transport: AsyncTransport, record: models.AgentRunOutcome) -> None:
        self._transport = transport
        self.record = record
        """The last known state."""
        self.id = record.id
        self._path = f"/v1/sandboxes/{record.sandbox_id}/agent/runs/{record.id}"

    async def refresh(self) -> models.AgentRunOutcome:
        """Fetch the current state; `result` is set after the end."""
        self.record = await self._transport.fetch(models.AgentRunOutcome, call("GET", self._path))
        return self.record

    def follow(self, *, after: int | None = None) -> AsyncGenerator[AgentEvent, None]:
        """Stream the agent's messages from the start, or after an event's `id`; AgentEnded is the last event."""
        return self._events(call("GET", self._events_path), after=after)

    async def wait(self) -> models.AgentRunOutcome:
        """Wait until the run ends."""
        if self.record.ended_at is None:
            from_now_on = call("GET", self._events_path, query={"tail": 0})
            async with aclosing(self._events(from_now_on)) as events:
                async for _ in events:
                    pass
            await self.refresh()
        return self.record

    async def interrupt(self) -> None:
        """Interrupt the agent; the run ends with a result."""
        await self._transport.send(call("POST", f"{self._path}/interrupt"))

    @property
    def _events_path(self) -> str:
        return f"{self._path}/events"

    def _events(
        self, request: Call, *, after: int | None = None
    ) -> AsyncGenerator[AgentEvent, None]:
        return follow_stream(
            self._transport,
            request,
            read_agent_event,
            after=after,
            is_last=lambda event: isinstance(event, AgentEnded),
        )


async def forward_events(
    run: AsyncAgentRun, on_event: Callback[[AgentEvent]]
) -> models.AgentRunOutcome:
    """Call back with the events as they arrive; return the outcome."""
    async with aclosing(run.follow()) as events:
        async for event in events:
            await invoke(on_event, event)
    return await run.refresh()
