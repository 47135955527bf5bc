from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from itertools import count
from types import TracebackType
from typing import Any, Self

import httpx

from sandbox_client._async.concurrency import Callback, Lock, invoke
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.errors import SandboxError
from sandbox_client.errors.parsing import error_of, unexpected
from sandbox_client.protocol import mcp_messages as messages
from sandbox_client.protocol.calls import EVENT_STREAM, call
from sandbox_client.protocol.mcp_messages import ToolDescription, ToolProgress, ToolResult
from sandbox_client.protocol.sse import EventParser

_PROBLEM = "application/problem+json"


class AsyncTool:
    """A tool of a sandbox."""

    def __init__(self, session: "AsyncToolSession", description: ToolDescription) -> None:
        self._session = session
        self.name = description.name
        self.description = description.description
        self.input_schema = description.input_schema
        self.annotations = description.annotations

    async def call(
        self,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callback[[ToolProgress]] | None = None,
    ) -> ToolResult:
        """Call the tool; a failure is reported in the result."""
        return await self._session.call_tool(self.name, arguments, on_progress=on_progress)


class AsyncToolSession:
    """An MCP session with the tool server of a sandbox: opened on first use, reopened if the server lost it."""

    def __init__(self, transport: AsyncTransport, sandbox_path: str) -> None:
        self._transport = transport
        self._address = call("POST", f"{sandbox_path}/mcp/", headers=messages.ACCEPTED)
        self._numbers = count(1)
        self._beginning = Lock()
        self._session: dict[str, str] | None = None

    async def __aenter__(self) -> Self:
        await self._headers()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the session. It does not resume the sandbox; a deleted one is no error."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(SandboxError):
                ended = call("DELETE", self._address.path).with_headers(session)
                await self._transport.send(ended.once())

    async def list_tools(self) -> list[AsyncTool]:
        """List the tools, including those of MCP servers behind the tool server."""
        found: list[AsyncTool] = []
        cursor: dict[str, str] = {}
        while True:
            listed = await self._ask("tools/list", cursor)
            found += [AsyncTool(self, messages.read_tool(data)) for data in listed["tools"]]
            if not listed.get("nextCursor"):
                return found
            cursor = {"cursor": listed["nextCursor"]}

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callback[[ToolProgress]] | None = None,
    ) -> ToolResult:
        """Call a tool by name; a failure is reported in the result."""
        request = {"name": name, "arguments": dict(arguments or {})}
        data = await self._ask("tools/call", request, on_progress=on_progress)
        return messages.read_result(data)

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        on_progress: Callback[[ToolProgress]] | None = None,
    ) -> dict[str, Any]:
        for _ in range(2):
            session = await self._headers()
            response = await self._exchange(method, params, session, on_progress)
            if response is not None:
                return messages.result_of(response)
            if self._session is session:
                self._session = None  # the server lost the session, so nothing was executed
        raise messages.ToolServerError("The tool server lost the session twice in a row.")

    async def _headers(self) -> dict[str, str]:
        async with self._beginning:
            if self._session is None:
                self._session = await self._begin()
            return self._session

    async def _begin(self) -> dict[str, str]:
        hello = messages.request(next(self._numbers), "initialize", messages.INITIALIZE_PARAMS)
        async with self._transport.attempt(self._address.with_body(hello)) as response:
            result = messages.result_of(await self._answer(response, None))
            session = {"MCP-Protocol-Version": str(result.get("protocolVersion"))}
            if "mcp-session-id" in response.headers:
                session["Mcp-Session-Id"] = response.headers["mcp-session-id"]
        begun = messages.notification("notifications/initialized", {})
        await self._transport.send(self._address.with_body(begun).with_headers(session))
        return session

    async def _exchange(
        self,
        method: str,
        params: Mapping[str, Any],
        session: dict[str, str],
        on_progress: Callback[[ToolProgress]] | None,
    ) -> dict[str, Any] | None:
        """Send one request and return the response; None if the session is unknown."""
        number = next(self._numbers)
        token = {} if on_progress is None else {"_meta": {"progressToken": number}}
        body = messages.request(number, method, {**params, **token})
        request = self._address.with_body(body).with_headers(session)
        async with self._transport.attempt(request.expecting(HTTPStatus.NOT_FOUND)) as response:
            if response.status_code != HTTPStatus.NOT_FOUND:
                return await self._answer(response, on_progress)
            content = await response.aread()
        if response.headers.get("content-type") == _PROBLEM:  # the sandbox itself does not exist
            raise error_of(response.status_code, response.headers, content)
        return None

    async def _answer(
        self, response: httpx.Response, on_progress: Callback[[ToolProgress]] | None
    ) -> dict[str, Any]:
        if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
            return messages.read_message(await response.aread())
        parser = EventParser()
        async for content in response.aiter_bytes():
            for event in parser.feed(content):
                message = messages.read_message(event.data)
                if "result" in message or "error" in message:
                    return message
                progress = messages.progress_in(message)
                if progress is not None:
                    await invoke(on_progress, progress)
        raise unexpected(response.status_code, b"a stream that ended without an answer")
