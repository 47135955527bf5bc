"""The JSON-RPC messages of MCP needed to list and call tools."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox_client.errors import SandboxError
from sandbox_client.errors.parsing import unexpected

VERSION = "2025-06-18"
ACCEPTED = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
INITIALIZE_PARAMS = {
    "protocolVersion": VERSION,
    "capabilities": {},
    "clientInfo": {"name": "sandbox-client", "version": "1"},
}


class ToolServerError(SandboxError):
    """The tool server rejected a request. A failing tool reports it in its result instead."""


@dataclass(frozen=True)
class ToolResult:
    """Result of a tool: MCP content blocks, and the structured result if there is one."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None
    is_error: bool

    @property
    def text(self) -> str:
        """The text blocks."""
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")


@dataclass(frozen=True)
class ToolDescription:
    """Description of a tool for agents."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolProgress:
    done: float
    total: float | None
    message: str | None


def request(number: int, method: str, params: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


def notification(method: str, params: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def read_message(content: str | bytes) -> dict[str, Any]:
    try:
        data = json.loads(content)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise unexpected(200, content if isinstance(content, bytes) else content.encode())
    return data


def result_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a response; raise if it is an error."""
    if "error" in message:
        raise ToolServerError(str(message["error"].get("message", message["error"])))
    result: dict[str, Any] = message["result"]
    return result


def progress_in(message: Mapping[str, Any]) -> ToolProgress | None:
    if message.get("method") != "notifications/progress":
        return None
    data = message.get("params", {})
    return ToolProgress(data.get("progress", 0), data.get("total"), data.get("message"))


def read_tool(data: Mapping[str, Any]) -> ToolDescription:
    return ToolDescription(
        data["name"],
        data.get("description") or "",
        data.get("inputSchema") or {"type": "object"},
        data.get("annotations") or {},
    )


def read_result(data: Mapping[str, Any]) -> ToolResult:
    return ToolResult(
        list(data.get("content") or []),
        data.get("structuredContent"),
        is_error=bool(data.get("isError")),
    )
