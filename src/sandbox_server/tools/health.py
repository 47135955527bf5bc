"""Health of the services in a sandbox; what they report is validated before it is shown."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sandbox_server.domain.errors.storable_text import storable

LARGEST_HEALTH = 64 * 1024

_MOST_SERVERS = 100
_MOST_TOOLS = 100_000
_LONGEST_WORD = 64
_LONGEST_ERROR = 300


class Availability(StrEnum):
    """Whether a service responds on its port."""

    READY = "ready"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class McpServer:
    """The state of an MCP server behind the tool server, as reported by the tool server."""

    state: str
    tools: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToolServerHealth:
    state: Availability = Availability.UNKNOWN
    version: str | None = None
    tools: int | None = None
    servers: Mapping[str, McpServer] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ServicesHealth:
    """Results of the latest health checks; `unknown` before the first one."""

    tool_server: ToolServerHealth = field(default_factory=ToolServerHealth)
    agent: Availability = Availability.UNKNOWN
    code_server: Availability = Availability.UNKNOWN
    settings_error: str | None = None
    """Why the services' settings could not be written."""
    checked_at: datetime | None = None


def parse_tool_server_health(body: bytes) -> ToolServerHealth:
    """Parse a tool server's health report; invalid fields are left out."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return ToolServerHealth(state=Availability.READY)
    return ToolServerHealth(
        state=Availability.READY,
        version=_text(document.get("version"), _LONGEST_WORD),
        tools=_count(document.get("tools")),
        servers=dict(_servers(document.get("servers"))),
    )


def _servers(value: Any) -> Iterator[tuple[str, McpServer]]:
    if not isinstance(value, dict):
        return
    for name, server in list(value.items())[:_MOST_SERVERS]:
        text = _text(name, _LONGEST_WORD)
        if text is not None and isinstance(server, dict):
            yield (
                text,
                McpServer(
                    state=_text(server.get("state"), _LONGEST_WORD) or "unknown",
                    tools=_count(server.get("tools")),
                    error=_text(server.get("error"), _LONGEST_ERROR),
                ),
            )


def _text(value: Any, longest: int) -> str | None:
    return storable(value[:longest]) or None if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOOLS
    return value if is_count else None
