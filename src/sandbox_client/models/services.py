"""The services that a template starts in its sandboxes."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from sandbox_client.models.wire import ResponseModel


class ServiceState(StrEnum):
    """State of a service; `unknown` if it was not checked, for example because the sandbox is not running."""

    READY = "ready"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


class McpServerRead(ResponseModel):
    """An MCP server behind the tool server, as the tool server reports it."""

    state: str
    tools: int | None
    error: str | None


class ToolServerRead(ResponseModel):
    state: ServiceState
    version: str | None
    tools: int | None
    servers: Annotated[
        dict[str, McpServerRead], Field(description="MCP servers behind the tool server, by name.")
    ]


class ServicesRead(ResponseModel):
    """The services of a sandbox at the last check. Checks never resume a sandbox or delay a response."""

    settings: Annotated[
        Literal["written", "pending"],
        Field(description="Whether the current settings are written to the sandbox."),
    ]
    settings_error: Annotated[
        str | None, Field(description="Why writing the settings failed; it is retried.")
    ]
    tool_server: ToolServerRead
    agent: ServiceState
    code_server: ServiceState
    checked_at: datetime | None
