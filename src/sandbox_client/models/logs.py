from datetime import datetime
from typing import Literal

from sandbox_client.models.operations import EventRead
from sandbox_client.models.wire import ResponseModel


class LogEvent(EventRead):
    """An event in the log of a sandbox."""

    source: Literal["events"]


class LogRecord(ResponseModel):
    """Output, start, exit or gap of a command, terminal, service or agent. The fields depend on `type`."""

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
    """Entries between `after` and `oldest` were removed."""

    type: Literal["gap"]
    after: int
    oldest: int
