import asyncio
import socket
from datetime import timedelta

from starlette.types import ASGIApp
from uvicorn.server import ServerState

from sandbox_engine.http.server import EngineHttp, http_config

# A connection serves one request, so this bounds requests too; 50 a second cost 2 % of a core.
BACKLOG = 16
_CONNECTIONS = 16
_BURST = 64
_PER_SECOND = 50.0
_PAUSE = timedelta(milliseconds=100)
_PAUSE_AFTER_ERROR = timedelta(seconds=1)


class BoundedListener:
    """Serves an app to untrusted callers of one socket, with few connections at a slow rate.

    Callers above the bounds wait in the socket's backlog, where they cost nothing. The app must
    close each connection after its response.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._listener = listener
        self._config = http_config(app, EngineHttp)
        self._config.load()
        self._state = ServerState()
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[None]] = set()
        self._allowance = float(_BURST)
        self._counted_at = self._loop.time()
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Stop listening."""
        self._stop_accepting()
        self._listener.close()

    async def cut(self) -> None:
        """Abort all connections."""
        for starting in self._starting:
            starting.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()

    def _accept(self) -> None:
        if not self._may_accept():
            self._pause_accepting(_PAUSE)
            return
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:  # no descriptors are left
            self._pause_accepting(_PAUSE_AFTER_ERROR)
            return
        self._allowance -= 1
        connection.setblocking(False)
        starting = asyncio.create_task(self._start(connection))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)

    async def _start(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except BaseException:
            connection.close()
            raise

    def _protocol(self) -> EngineHttp:
        return EngineHttp(self._config, self._state, {}, self._loop)

    def _may_accept(self) -> bool:
        now = self._loop.time()
        earned = (now - self._counted_at) * _PER_SECOND
        self._allowance = min(self._allowance + earned, _BURST)
        self._counted_at = now
        is_full = len(self._state.connections) + len(self._starting) >= _CONNECTIONS
        return self._allowance >= 1 and not is_full

    def _pause_accepting(self, pause: timedelta) -> None:
        self._stop_accepting()
        self._pause = self._loop.call_later(pause.total_seconds(), self._accept_again)

    def _accept_again(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _stop_accepting(self) -> None:
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
