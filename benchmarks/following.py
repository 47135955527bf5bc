import asyncio
import re
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from sqlalchemy import select, text

from benchmarks.followers.crowd import Experience, following
from benchmarks.report import Figure
from benchmarks.server import Server, cpu_seconds_of, started_server
from benchmarks.stub.process import started_stub
from sandbox_server.db.embedded import EmbeddedPostgres
from sandbox_server.db.models import Tenant
from sandbox_server.db.session import Sessions, create_engine, create_sessions
from sandbox_server.domain.events import SERVER, Cause, Stopping
from sandbox_server.log.events import EventRepository

_FOLLOWERS = 1000
_PER_SECOND = 100
_SECONDS = 40  # until one that takes nothing is cut off, and longer
_LAST_ONES = 1.0

_CONNECTIONS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sandbox-server'"
)


@dataclass(frozen=True)
class Load:
    """Measurements of one fan-out."""

    experience: Experience
    core: float
    """Busy share of a core."""
    events: int

    @property
    def microseconds(self) -> float:
        """CPU time per delivered event."""
        return self.core / (_PER_SECOND * _FOLLOWERS) * 1e6


async def followers() -> AsyncIterator[Figure]:
    """Many followers of a tenant's events at one server, one of which reads nothing."""
    floor = await _measure_floor()
    async with (
        started_stub() as stub,
        started_server(stub) as server,
        _sessions(server) as sessions,
    ):
        before = server.resident_mb()
        stalled = await _ask_and_read_nothing(server)
        connections = _Most()
        url = str(server.client.base_url.join("/v1/events?tail=0"))
        async with following(
            url, key=server.client.headers["X-API-Key"], count=_FOLLOWERS
        ) as crowd:
            resident = server.resident_mb()
            busy = server.cpu_seconds()
            events = await _happen(sessions, connections)
            busy = server.cpu_seconds() - busy
            grown = server.resident_mb() - resident
            load = Load(await crowd.leave(), busy / _SECONDS, events)
        was_cut_off = await _was_cut_off(stalled)
    told = load.experience
    missing = events * _FOLLOWERS - told.received
    yield Figure(
        f"{_FOLLOWERS} followers, p99 of {_PER_SECOND} events/s",
        told.quantile(0.99),
        "ms",
        target=250,
    )
    for name, part in (("p99", 0.99), ("p50", 0.5)):
        ours, least = (each.experience.quantile(part) for each in (load, floor))
        yield Figure(f"the same, {name} / bare Starlette", ours, "ms", floor=least)
    yield Figure(
        "a core's time for each / bare Starlette", load.microseconds, "us", floor=floor.microseconds
    )
    yield Figure("events lost or doubled", missing + told.lost + told.closed, "", target=0)
    yield Figure("memory for each follower", (resident - before) / _FOLLOWERS * 1024, "KB")
    yield Figure("memory that it took while they followed", grown, "MB", target=20)
    yield Figure("connections to the database", connections.most, "", target=10)
    yield Figure("stalled followers that were left", 0 if was_cut_off else 1, "", target=0)


class _Most:
    most = 0

    def note(self, count: int) -> None:
        self.most = max(self.most, count)


async def _happen(sessions: Sessions, connections: _Most) -> int:
    """Produce events as another server would; returns their number."""
    async with sessions() as session:
        tenant_id = (await session.scalars(select(Tenant.id))).one()
    began, number = monotonic(), 0
    while (due := began + number / _PER_SECOND) < began + _SECONDS:
        await asyncio.sleep(max(0, due - monotonic()))
        event = Stopping(
            sandbox_id="s" * 20, cause=Cause.EXPIRY, actor=SERVER, reason=f"{monotonic():.6f}"
        )
        async with sessions.begin() as session:
            await EventRepository(session).append(tenant_id, event)
        number += 1
        if number % _PER_SECOND == 0:
            async with sessions() as session:
                connections.note(await session.scalar(_CONNECTIONS) or 0)
    await asyncio.sleep(_LAST_ONES)
    return number


async def _measure_floor() -> Load:
    async with _floor() as (url, pid), following(url, key="none", count=_FOLLOWERS) as crowd:
        busy = cpu_seconds_of(pid)
        await asyncio.sleep(_SECONDS / 4)
        busy = cpu_seconds_of(pid) - busy
        return Load(await crowd.leave(), busy / (_SECONDS / 4), 0)


@asynccontextmanager
async def _floor() -> AsyncIterator[tuple[str, int]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.followers.floor", str(_PER_SECOND)), stdout=PIPE
    )
    try:
        assert process.stdout is not None
        found = re.fullmatch(rb"listening on (\S+)\n", await process.stdout.readline())
        if found is None:
            raise RuntimeError("the bare app ended before it listened")
        yield f"{found[1].decode()}/", process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def _sessions(server: Server) -> AsyncIterator[Sessions]:
    """Open connections to the server's database under another application name."""
    url = EmbeddedPostgres(server.state_dir / "postgres").start()  # it runs, and is only found
    database = create_engine(f"{url}{'&' if '?' in url else '?'}application_name=benchmark")
    yield create_sessions(database)
    await database.dispose()


async def _ask_and_read_nothing(server: Server) -> socket.socket:
    """Request the stream over a connection with a small buffer."""
    client = server.client
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, (client.base_url.host, client.base_url.port))
    asked = (
        "GET /v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
        f"X-API-Key: {client.headers['X-API-Key']}\r\n\r\n"
    )
    await loop.sock_sendall(connection, asked.encode())
    return connection


async def _was_cut_off(connection: socket.socket) -> bool:
    """Return whether the other side has closed the connection after the buffered data."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(1):
            while await loop.sock_recv(connection, 2**20):
                pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    finally:
        connection.close()
    return True
