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
from sandbox_tools.gateway.errors import Failed
from sandbox_tools.gateway.http_transport import over_http, over_sse
from sandbox_tools.gateway.server_config import Launch, Transport
from sandbox_tools.gateway.stdio_transport import over_stdio

_MOST_TOOLS = 1000
_MOST_PAGES = 50
_MOST_OF_ITS_LIST = 256 * 1024
_ABOUT_MISSING = (
    "{} of its {} tools are left out: their descriptions are longer than what clients can be told."
)

_log = logging.getLogger(__name__)


class State(StrEnum):
    DISABLED = "disabled"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long servers are waited for, in seconds."""

    start: float = 120  # `npx` may have to fetch a package first
    retry: float = 1
    longest_retry: float = 60
    probe: float = 30
    relist: float = 1


class _Session(ClientSession):
    async def validate_tool_result(self, name: str, result: CallToolResult) -> None:
        """Leave it to whoever called: what is passed on is not ours to judge."""


class Upstream:
    """One server of the user's, connected as long as it is wanted, and again when it was lost."""

    def __init__(
        self,
        name: str,
        launch: Launch,
        *,
        directory: Path,
        log: Path,
        patience: Patience,
        changed: Callable[[], None],
    ) -> None:
        self.name = name
        self.launch = launch
        self.log = log
        self.state = State.STARTING
        self.tools: tuple[Tool, ...] = ()
        self.failure: Failed | None = None
        self.size = 0  # in bytes, of the list of its tools
        self._directory = directory
        self._patience = patience
        self._changed = changed
        self._session: _Session | None = None
        self._calls = 0
        self._began = asyncio.get_running_loop().time()
        self._settled = asyncio.Event()
        self._look_again = asyncio.Event()
        # It outlives the call that may have started it, and shall know nothing of whose that was.
        self._task = asyncio.create_task(
            self._live(), name=f"mcp-{name}", context=contextvars.Context()
        )

    async def stop(self) -> None:
        """End the connection, and the processes behind it."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def settle(self, seconds: float) -> None:
        """Wait until it is ready or has failed for the first time, but no longer than that."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), seconds)

    @property
    def is_settled(self) -> bool:
        return self._settled.is_set()

    async def settle_since_start(self, seconds: float) -> None:
        left = self._began + seconds - asyncio.get_running_loop().time()
        if left > 0:
            await self.settle(left)

    async def call(
        self, tool: str, arguments: dict[str, object], progress: ProgressFnT
    ) -> CallToolResult:
        """Have it carry out a tool; cancelled, it is told so."""
        session = self._session
        if session is None:
            raise self._why_it_is_not_there()
        self._calls += 1
        try:
            return await session.call_tool(tool, arguments, progress_callback=progress)
        except MCPError as error:
            self._look_again.set()
            if error.code == CONNECTION_CLOSED:
                if self._session is session:
                    self._session, self.state, self.failure = None, State.STARTING, None
                raise Failed("It ended during the call; it is started again.") from error
            raise Failed("", error.error.message) from error
        except ValidationError as error:
            raise Failed.of(error) from error
        finally:
            self._calls -= 1

    def _why_it_is_not_there(self) -> Failed:
        if self.failure is None:
            return Failed("It is still being started. Try again in some seconds.")
        return Failed(f"{self.failure} It is tried again by itself; mcp_list_servers tells more.")

    async def _live(self) -> None:
        retry = self._patience.retry
        while True:
            began = asyncio.get_running_loop().time()
            try:
                async with self._connected() as (connection, session):
                    await self._follow(connection, session)
            except Exception as error:  # noqa: BLE001 - whatever it fails of is told, and it is tried again
                self._fail(Failed.of(error))
            if asyncio.get_running_loop().time() - began > 2 * self._patience.longest_retry:
                retry = self._patience.retry
            await asyncio.sleep(retry)
            retry = min(2 * retry, self._patience.longest_retry)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Connection, _Session]]:
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(self._patience.start):
                connection = await stack.enter_async_context(self._transport())
                session = _Session(
                    connection.received, connection.sent, message_handler=self._notice
                )
                await stack.enter_async_context(session)
                with _telling_why(connection):
                    await _agree(session)
                    tools = await _listed(session)
            self._session, self.state = session, State.READY
            self._accept(tools)
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
            await self._until_something_happens(connection)
            if connection.failure is not None:
                raise connection.failure
            if self._calls and not self._look_again.is_set():
                continue  # it is there, and may be too busy to say so
            self._look_again.clear()
            with _telling_why(connection):
                async with asyncio.timeout(self._patience.start):
                    self._accept(await _listed(session))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(connection.ended.wait(), self._patience.relist)

    async def _until_something_happens(self, connection: Connection) -> None:
        # A process is seen to end; whether somebody still listens at a url shows only when it is asked.
        seconds = None if connection.ends_by_itself else self._patience.probe
        waits = [
            asyncio.ensure_future(event.wait()) for event in (connection.ended, self._look_again)
        ]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _notice(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._look_again.set()

    def _fail(self, failure: Failed) -> None:
        if self.failure is None or self.failure.sentence != failure.sentence:
            _log.warning("mcp server failed name=%s why=%s", self.name, failure.sentence)
        self.failure, self.state = failure, State.FAILED
        self._offer(())

    def _accept(self, listed: Sequence[Tool]) -> None:
        """Offer those of its tools that do not keep clients from being told of all others."""
        room, fitting = _MOST_OF_ITS_LIST, list[Tool]()
        for tool in listed:
            if (size := len(tool.model_dump_json(by_alias=True).encode())) <= room:
                fitting.append(tool)
                room -= size
        missing = len(listed) - len(fitting)
        self.size = _MOST_OF_ITS_LIST - room
        self.failure = Failed(_ABOUT_MISSING.format(missing, len(listed))) if missing else None
        self._offer(tuple(fitting))

    def _offer(self, tools: tuple[Tool, ...]) -> None:
        before, self.tools = self.tools, tools
        self._settled.set()
        if tools != before:
            self._changed()


@contextlib.contextmanager
def _telling_why(connection: Connection) -> Iterator[None]:
    """Of a connection that broke, tell the reason rather than that it did."""
    try:
        yield
    except MCPError:
        if why := connection.failure or connection.refusal:
            raise why from None
        raise


async def _agree(session: _Session) -> None:
    """Agree on a version: the handshake first, since by it a server also tells of changes unasked."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code == CONNECTION_CLOSED:
            raise
        await negotiate_auto(session)


async def _listed(session: _Session) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    cursor = None
    for _ in range(_MOST_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or len(tools) >= _MOST_TOOLS:
            break
    return tuple(tools[:_MOST_TOOLS])
