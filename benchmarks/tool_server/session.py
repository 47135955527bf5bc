import json
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from benchmarks.tool_server.process import TOKEN

_VERSION = "2025-11-25"
_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Authorization": f"Bearer {TOKEN}",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": _VERSION,
}


class Session:
    """A minimal MCP client, so that mostly the server is measured."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = dict(_HEADERS)
        about = {"name": "benchmark", "version": "1"}
        asked = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": about}
        answer, _ = self._send({"id": 0, "method": "initialize", "params": asked})
        self._headers["MCP-Session-Id"] = answer.headers["mcp-session-id"]
        self._send({"method": "notifications/initialized"})

    def call(self, tool: str, **arguments: str) -> None:
        """Call a tool and check its result."""
        called = {"name": tool, "arguments": arguments}
        _, answer = self._send({"id": 1, "method": "tools/call", "params": called})
        assert b'"result":{"content":[{' in answer and b'"isError":true' not in answer, answer  # noqa: PT018

    def _send(self, message: dict[str, Any]) -> tuple[HTTPResponse, bytes]:
        body = json.dumps({"jsonrpc": "2.0"} | message)
        self._connection.request("POST", "/mcp/", body, self._headers)
        answer = self._connection.getresponse()
        return answer, answer.read()
