from datetime import datetime
from typing import Literal

from sandbox_client.models.operations import EventRead
from sandbox_client.models.wire import ResponseModel


class LogEvent(EventRead):
    """Something that happened to a sandbox, in its log."""

    source: Literal["events"]


class LogRecord(ResponseModel):
    """What a command, a terminal or a service wrote, or something that happened to it. What there is depends on `type`."""

    source: Literal["command", "terminal", "service", "agent"]
    seq: int
    sandbox_id: str
    command_id: str
    name: str | None = None
    type: Literal["started", "stdout", "stderr", "gap", "exit"]
    at: datetime
    offset: int | None = None
    text: str | None = None
    base64: str | None = None
    stream: Literal["stdout", "stderr"] | None = None
    size: int | None = None
    pid: int | None = None
    state: str | None = None
    exit_code: int | None = None
    reason: str | None = None


class LogGap(ResponseModel):
    """Something is missing after one number and before another: it is no longer kept."""

    type: Literal["gap"]
    after: int
    oldest: int
