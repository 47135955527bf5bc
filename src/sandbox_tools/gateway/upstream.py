import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mcp import ClientSession, MCPError
from mcp.client._probe import negotiate_auto
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolResult,
    PaginatedRequestParams,
    Tool,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from sandbox_tools.gateway.connection import Connection
from sandbox_tools.gateway.errors import UpstreamError
from sandbox_tools.gateway.http_transport import over_http, over_sse
from sandbox_tools.gateway.server_config import LaunchSpec, Transport
from sandbox_tools.gateway.stdio_transport import over_stdio

_MAX_TOOLS = 1000
_MAX_PAGES = 50
_MAX_SERVER_LIST_BYTES = 256 * 1024
_TOOLS_LEFT_OUT = "{} of its {} tools are not listed: the tool list has reached its maximum size."

_log = logging.getLogger(__name__)


class State(StrEnum):
    DISABLED = "disabled"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Timeouts and intervals, in seconds."""

    start: float = 120  # `npx` may have to download a package
    retry: float = 1
    longest_retry: float = 60
    probe: float = 30
    relist: float = 1


class _Session(ClientSession):
    async def validate_tool_result(self, name: str, result: CallToolResult) -> None:
        """Do nothing: the caller validates results."""


class Upstream:
    """One of the user's servers: connects, reconnects, and keeps its list of tools."""

    def __init__(
        self,
        name: str,
        launch: LaunchSpec,
        *,
        directory: Path,
        log: Path,
        timeouts: Timeouts,
        changed: Callable[[], None],
    ) -> None:
        self.name = name
        self.launch = launch
        self.log = log
        self.state = State.STARTING
        self.tools: tuple[Tool, ...] = ()
        self.failure: UpstreamError | None = None
        self.size = 0  # of its tool list, in bytes
        self._directory = directory
        self._timeouts = timeouts
        self._apply = changed
        self._session: _Session | None = None
        self._calls = 0
        self._began = asyncio.get_running_loop().time()
        self._started_event = asyncio.Event()
        self._refresh = asyncio.Event()
        # An empty context: the task outlives the call that started it and must not inherit its variables.
        self._task = asyncio.create_task(
            self._run(), name=f"mcp-{name}", context=contextvars.Context()
        )

    async def stop(self) -> None:
        """End the connection and the server's processes."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def wait_until_ready(self, seconds: float) -> None:
        """Wait until the first start has succeeded or failed, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._started_event.wait(), seconds)

    @property
    def has_started(self) -> bool:
        return self._started_event.is_set()

    async def wait_since_start(self, seconds: float) -> None:
        left = self._began + seconds - asyncio.get_running_loop().time()
        if left > 0:
            await self.wait_until_ready(left)

    async def call(
        self, tool: str, arguments: dict[str, object], progress: ProgressFnT
    ) -> CallToolResult:
        """Call a tool; cancellation is forwarded to the server."""
        session = self._session
        if session is None:
            raise self._unavailable()
        self._calls += 1
        try:
            return await session.call_tool(tool, arguments, progress_callback=progress)
        except MCPError as error:
            self._refresh.set()
            if error.code == CONNECTION_CLOSED:
                if self._session is session:
                    self._session, self.state, self.failure = None, State.STARTING, None
                raise UpstreamError(
                    "The server ended during the call and is being restarted. Try again."
                ) from error
            raise UpstreamError("", error.error.message) from error
        except ValidationError as error:
            raise UpstreamError.of(error) from error
        finally:
            self._calls -= 1

    def _unavailable(self) -> UpstreamError:
        if self.failure is None:
            return UpstreamError("The server is still starting. Try again in a few seconds.")
        return UpstreamError(f"{self.failure} It is retried automatically; see mcp_list_servers.")

    async def _run(self) -> None:
        retry = self._timeouts.retry
        while True:
            began = asyncio.get_running_loop().time()
            try:
                async with self._connected() as (connection, session):
                    await self._follow(connection, session)
            except Exception as error:  # noqa: BLE001 - any failure is reported and retried
                self._fail(UpstreamError.of(error))
            if asyncio.get_running_loop().time() - began > 2 * self._timeouts.longest_retry:
                retry = self._timeouts.retry
            await asyncio.sleep(retry)
            retry = min(2 * retry, self._timeouts.longest_retry)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Connection, _Session]]:
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(self._timeouts.start):
                connection = await stack.enter_async_context(self._transport())
                session = _Session(
                    connection.received, connection.sent, message_handler=self._notice
                )
                await stack.enter_async_context(session)
                with _raising_failure(connection):
                    await _handshake(session)
                    tools = await _list_tools_of(session)
            self._session, self.state = session, State.READY
            self._accept_tools(tools)
            try:
                yield connection, session
            finally:
                self._session = None

    def _transport(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        if self.launch.transport is Transport.STDIO:
            return over_stdio(self.launch, directory=self._directory, log=self.log)
        if self.launch.transport is Transport.SSE:
            return over_sse(self.launch)
        return over_http(self.launch)

    async def _follow(self, connection: Connection, session: _Session) -> None:
        """Keep the list of tools up to date until the connection is lost."""
        while True:
            await self._wait_for_event(connection)
            if connection.failure is not None:
                raise connection.failure
            if self._calls and not self._refresh.is_set():
                continue  # alive, but perhaps too busy to respond
            self._refresh.clear()
            with _raising_failure(connection):
                async with asyncio.timeout(self._timeouts.start):
                    self._accept_tools(await _list_tools_of(session))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(connection.ended.wait(), self._timeouts.relist)

    async def _wait_for_event(self, connection: Connection) -> None:
        # The end of a process is an event; an HTTP server has to be probed.
        seconds = None if connection.reports_exit else self._timeouts.probe
        waits = [asyncio.ensure_future(event.wait()) for event in (connection.ended, self._refresh)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _notice(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._refresh.set()

    def _fail(self, failure: UpstreamError) -> None:
        if self.failure is None or self.failure.message != failure.message:
            _log.warning("mcp_server_failed name=%s error=%s", self.name, failure.message)
        self.failure, self.state = failure, State.FAILED
        self._set_tools(())

    def _accept_tools(self, listed: Sequence[Tool]) -> None:
        """Accept the tools that fit into the maximum size of a list."""
        room, accepted = _MAX_SERVER_LIST_BYTES, list[Tool]()
        for tool in listed:
            if (size := len(tool.model_dump_json(by_alias=True).encode())) <= room:
                accepted.append(tool)
                room -= size
        missing = len(listed) - len(accepted)
        self.size = _MAX_SERVER_LIST_BYTES - room
        self.failure = (
            UpstreamError(_TOOLS_LEFT_OUT.format(missing, len(listed))) if missing else None
        )
        self._set_tools(tuple(accepted))

    def _set_tools(self, tools: tuple[Tool, ...]) -> None:
        before, self.tools = self.tools, tools
        self._started_event.set()
        if tools != before:
            self._apply()


@contextlib.contextmanager
def _raising_failure(connection: Connection) -> Iterator[None]:
    """Raise the cause of a broken connection instead of the generic error."""
    try:
        yield
    except MCPError:
        if why := connection.failure or connection.refusal:
            raise why from None
        raise


async def _handshake(session: _Session) -> None:
    """Negotiate the version; the handshake first, since only then servers announce changes unasked."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code == CONNECTION_CLOSED:
            raise
        await negotiate_auto(session)


async def _list_tools_of(session: _Session) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    cursor = None
    for _ in range(_MAX_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or len(tools) >= _MAX_TOOLS:
            break
    return tuple(tools[:_MAX_TOOLS])
