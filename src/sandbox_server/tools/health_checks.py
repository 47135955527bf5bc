import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from sandbox_client.models import ServicesRead, ToolServerRead
from sandbox_http.messages import RequestHead
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost
from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import OUTAGES, Sessions, without_transaction
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.service_ports import AGENT_PORT, CODE_SERVER_PORT, TOOLS_PORT
from sandbox_server.domain.state import State
from sandbox_server.jobs.kinds import SERVICES
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.protocol.provider import PortAddress, PortRefusal
from sandbox_server.proxy.pool import ConnectionPool
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.tools.health import (
    LARGEST_HEALTH,
    Answer,
    ServicesHealth,
    ToolServerHealth,
    read_tool_server,
)

_TOOLS = "tool_server"
_ASKED = {
    _TOOLS: (TOOLS_PORT, b"/health"),
    "agent": (AGENT_PORT, b"/health"),
    "code_server": (CODE_SERVER_PORT, b"/healthz"),
}

_FRESH = timedelta(seconds=2)
_PATIENCE = timedelta(milliseconds=150)
"""How long who asks waits for news; what comes later is told to who asks next."""
_WITHIN = timedelta(seconds=3)
_MOST_KNOWN = 10_000
_MOST_AT_ONCE = 16  # of one tenant: its sandboxes may be slow on purpose

_SILENT = ServicesHealth()


@dataclass(frozen=True)
class _Known:
    runs_since: datetime | None
    asked_at: float
    health: ServicesHealth


@dataclass(frozen=True)
class _Asking:
    task: asyncio.Task[None]
    has_news: asyncio.Event
    """Of all that were not out of reach before."""


class ServiceHealth:
    """Asks services in running sandboxes how they are, and remembers it for a moment.

    It wakes none and is no use of one. Nobody waits for long, nor for what was not there the last time, and a sandbox is
    trusted with nothing that it says.
    """

    def __init__(self, sessions: Sessions, reach_into: Callable[[Sandbox], UsableSandbox]) -> None:
        self._sessions = sessions
        self._reach_into = reach_into
        self._pool = ConnectionPool()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, _Asking] = {}
        self._of_tenants: Counter[str] = Counter()

    def known(self, row: Sandbox) -> ServicesHealth:
        """Tell what is known without asking anybody."""
        known = self._known.get(row.id)
        is_so = row.state is State.RUNNING and known and known.runs_since == row.started_at
        return known.health if known and is_so else _SILENT

    def view(self, row: Sandbox) -> ServicesRead | None:
        """Describe the services of a sandbox without asking them."""
        return view_services(row, self.known(row))

    async def ask(self, row: Sandbox) -> None:
        """See to it that what is known of a sandbox is new, if its services answer at once."""
        if not row.has_services or row.state is not State.RUNNING:
            return
        asking = self._asking.get(row.id)
        if asking is None and not self._is_fresh(row):
            asking = self._begin(row)
        if asking is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE.total_seconds()):
                    await asking.has_news.wait()

    def close(self) -> None:
        """Ask nobody any more."""
        for asking in self._asking.values():
            asking.task.cancel()
        self._pool.close()

    def _is_fresh(self, row: Sandbox) -> bool:
        known = self._known.get(row.id)
        return (
            known is not None
            and known.runs_since == row.started_at
            and known.asked_at > asyncio.get_running_loop().time() - _FRESH.total_seconds()
        )

    def _begin(self, row: Sandbox) -> "_Asking | None":
        if self._of_tenants[row.tenant_id] >= _MOST_AT_ONCE:
            return None
        has_news = asyncio.Event()
        task = asyncio.create_task(self._refresh(row, has_news))
        asking = self._asking[row.id] = _Asking(task, has_news)
        self._of_tenants[row.tenant_id] += 1
        task.add_done_callback(lambda _: self._end(row))
        return asking

    def _end(self, row: Sandbox) -> None:
        self._asking.pop(row.id).has_news.set()
        self._of_tenants[row.tenant_id] -= 1
        if not self._of_tenants[row.tenant_id]:
            del self._of_tenants[row.tenant_id]

    async def _refresh(self, row: Sandbox, has_news: asyncio.Event) -> None:
        """Ask all three, and remember what each says as soon as it does."""
        asked_at, before = asyncio.get_running_loop().time(), self.known(row)
        awaited = {name for name in _ASKED if getattr(before, name) is not Answer.UNREACHABLE}

        async def find_out(used: UsableSandbox, name: str) -> None:
            answer, said = await self._ask_one(used, *_ASKED[name])
            news = answer if name != _TOOLS else _health_of_tools(answer, said)
            self._remember(row, asked_at, **{name: news})
            awaited.discard(name)
            if not awaited:
                has_news.set()

        with suppress(SandboxError, *OUTAGES):
            used = self._reach_into(row)
            now, error = await self._look_up(row)
            self._remember(row, asked_at, settings_error=error)
            await asyncio.gather(*(find_out(used, name) for name in _ASKED))
            self._remember(row, asked_at, checked_at=now)

    def _remember(self, row: Sandbox, asked_at: float, **news: Any) -> None:
        health = replace(self.known(row), **news)
        self._known[row.id] = _Known(row.started_at, asked_at, health)
        self._known.move_to_end(row.id)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    async def _look_up(self, row: Sandbox) -> tuple[datetime, str | None]:
        """Give the instant, and why its settings were not written."""
        error = None
        async with without_transaction(self._sessions) as session:
            now = await SandboxRepository(session).clock()
            if row.services_digest is None:
                failure = await JobRepository(session).find_error(SERVICES, row.id)
                error = failure and failure.partition(": ")[2]
        return now, error

    async def _ask_one(self, used: UsableSandbox, port: int, path: bytes) -> tuple[Answer, bytes]:
        address = used.backend.port_address(used.access, port)
        try:
            async with asyncio.timeout(_WITHIN.total_seconds()):
                status, body = await self._get(address, path)
        except (OSError, TimeoutError, UpstreamInvalid, UpstreamLost):
            return Answer.UNREACHABLE, b""
        if used.backend.find_refusal(address, status, body) is PortRefusal.GONE:
            return Answer.UNKNOWN, b""
        return (Answer.READY if status == HTTPStatus.OK else Answer.UNREACHABLE), body

    async def _get(self, address: PortAddress, path: bytes) -> tuple[int, bytes]:
        upstream = await self._pool.connect(address)
        try:
            upstream.start(_question(address, path))
            response = await upstream.response()
            return response.status, await _read(upstream)
        finally:
            self._pool.drop(upstream)


def _health_of_tools(answer: Answer, said: bytes) -> ToolServerHealth:
    return read_tool_server(said) if answer is Answer.READY else ToolServerHealth(state=answer)


async def _read(upstream: Upstream) -> bytes:
    body, last = b"", False
    while not last and len(body) <= LARGEST_HEALTH:
        more, last = await upstream.body()
        body += more
    return body if last else b""


def _question(address: PortAddress, path: bytes) -> RequestHead:
    lines = [
        b"GET %s HTTP/1.1" % path,
        b"Host: " + address.authority.encode(),
        b"Connection: close",
        *(b"%s: %s" % header for header in address.headers),
    ]
    return RequestHead(
        data=b"\r\n".join([*lines, b"", b""]),
        method="GET",
        is_chunked=False,
        has_body=False,
        upgrade=None,
    )


def view_services(row: Sandbox, health: ServicesHealth) -> ServicesRead | None:
    if not row.has_services:
        return None
    is_written = row.services_digest is not None
    return ServicesRead(
        settings="written" if is_written else "pending",
        settings_error=None if is_written else health.settings_error,
        tool_server=ToolServerRead.model_validate(health.tool_server, from_attributes=True),
        agent=health.agent,
        code_server=health.code_server,
        checked_at=health.checked_at,
    )
