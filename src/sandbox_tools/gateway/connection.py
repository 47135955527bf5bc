from asyncio import Event
from dataclasses import dataclass, field
from typing import Any

from sandbox_tools.gateway.errors import UpstreamError

MAX_MESSAGE = 16 << 20


@dataclass
class Connection:
    """The message streams to and from a server, and an event for their end."""

    received: Any
    sent: Any
    ended: Event = field(default_factory=Event)
    failure: UpstreamError | None = None
    refusal: UpstreamError | None = None
    """Why the last HTTP request failed, which the MCP client does not report."""
    reports_exit: bool = False

    def end(self, failure: UpstreamError) -> None:
        self.failure = self.failure or failure
        self.ended.set()
