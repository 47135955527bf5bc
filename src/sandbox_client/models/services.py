"""The services that a sandbox's template starts in it."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from sandbox_client.models.wire import ResponseModel


class ServiceState(StrEnum):
    """Whether a service answers; `unknown` where nobody asked it, as in a sandbox that does not run."""

    READY = "ready"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


class McpServerRead(ResponseModel):
    """What the tool server says of one of the MCP servers behind it."""

    state: str
    tools: int | None
    error: str | None


class ToolServerRead(ResponseModel):
    state: ServiceState
    version: str | None
    tools: int | None
    servers: Annotated[
        dict[str, McpServerRead], Field(description="The MCP servers behind it, by name.")
    ]


class ServicesRead(ResponseModel):
    """A sandbox's services, as they were when they were asked last: asking wakes nothing, and waits for nobody."""

    settings: Annotated[
        Literal["written", "pending"],
        Field(description="Whether they were told all that they are to know."),
    ]
    settings_error: Annotated[
        str | None, Field(description="Why not, where that was tried; it is tried again.")
    ]
    tool_server: ToolServerRead
    agent: ServiceState
    code_server: ServiceState
    checked_at: datetime | None
