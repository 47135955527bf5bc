"""How the services in a sandbox are, as far as is known: of what they say themselves, what can be told on."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sandbox_server.domain.texts import storable

LARGEST_HEALTH = 64 * 1024

_MOST_SERVERS = 100
_MOST_TOOLS = 100_000
_LONGEST_WORD = 64
_LONGEST_ERROR = 300


class Answer(StrEnum):
    """Whether something answers at a service's port."""

    READY = "ready"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class McpServer:
    """What a tool server says of one of the MCP servers behind it."""

    state: str
    tools: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToolServerHealth:
    state: Answer = Answer.UNKNOWN
    version: str | None = None
    tools: int | None = None
    servers: Mapping[str, McpServer] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ServicesHealth:
    """What was found when they were asked last; who never was is unknown."""

    tool_server: ToolServerHealth = field(default_factory=ToolServerHealth)
    agent: Answer = Answer.UNKNOWN
    code_server: Answer = Answer.UNKNOWN
    settings_error: str | None = None
    """Why they were not told their settings yet."""
    checked_at: datetime | None = None


def read_tool_server(said: bytes) -> ToolServerHealth:
    """Take what a tool server that answers says of itself; what is not as it should be is left out."""
    try:
        document = json.loads(said)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return ToolServerHealth(state=Answer.READY)
    return ToolServerHealth(
        state=Answer.READY,
        version=_text(document.get("version"), _LONGEST_WORD),
        tools=_count(document.get("tools")),
        servers=dict(_servers(document.get("servers"))),
    )


def _servers(said: Any) -> Iterator[tuple[str, McpServer]]:
    if not isinstance(said, dict):
        return
    for name, server in list(said.items())[:_MOST_SERVERS]:
        known = _text(name, _LONGEST_WORD)
        if known is not None and isinstance(server, dict):
            yield (
                known,
                McpServer(
                    state=_text(server.get("state"), _LONGEST_WORD) or "unknown",
                    tools=_count(server.get("tools")),
                    error=_text(server.get("error"), _LONGEST_ERROR),
                ),
            )


def _text(said: Any, longest: int) -> str | None:
    return storable(said[:longest]) or None if isinstance(said, str) else None


def _count(said: Any) -> int | None:
    is_count = isinstance(said, int) and not isinstance(said, bool) and 0 <= said <= _MOST_TOOLS
    return said if is_count else None
