import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

from sandbox_server.backends.provider import PortAddress, PortRefusal
from sandbox_server.db.jobs import JobRepository
from sandbox_server.db.models import Sandbox
from sandbox_server.db.sandboxes import SandboxRepository
from sandbox_server.db.session import OUTAGES, Sessions, without_transaction
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.service_health import (
    LARGEST_HEALTH,
    Answer,
    ServicesHealth,
    ToolServerHealth,
    read_tool_server,
)
from sandbox_server.domain.state import State
from sandbox_server.lifecycle.kinds import SERVICES
from sandbox_server.lifecycle.using import UsableSandbox
from sandbox_server.passing.pool import Pool
from sandbox_server.passing.request import PassedRequest
from sandbox_server.passing.upstream import Upstream, UpstreamInvalid, UpstreamLost

TOOLS_PORT = 6060
AGENT_PORT = 3000
CODE_SERVER_PORT = 9000

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


class ServiceHealth:
    """Asks services in running sandboxes how they are, and remembers it for a moment.

    It wakes none and is no use of one. Nobody waits for long, and a sandbox is trusted with nothing that it says.
    """

    def __init__(self, sessions: Sessions, reach_into: Callable[[Sandbox], UsableSandbox]) -> None:
        self._sessions = sessions
        self._reach_into = reach_into
        self._pool = Pool()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._of_tenants: Counter[str] = Counter()

    def known(self, row: Sandbox) -> ServicesHealth:
        """Tell what is known without asking anybody."""
        known = self._known.get(row.id)
        is_so = row.state is State.RUNNING and known and known.runs_since == row.started_at
        return known.health if known and is_so else _SILENT

    async def ask(self, row: Sandbox) -> None:
        """See to it that what is known of a sandbox is new, if its services answer at once."""
        if not row.has_services or row.state is not State.RUNNING or self._is_fresh(row):
            return
        asking = self._asking.get(row.id) or self._begin(row)
        if asking is not None:
            await asyncio.wait([asking], timeout=_PATIENCE.total_seconds())

    def close(self) -> None:
        """Ask nobody any more."""
        for task in self._asking.values():
            task.cancel()
        self._pool.close()

    def _is_fresh(self, row: Sandbox) -> bool:
        known = self._known.get(row.id)
        return (
            known is not None
            and known.runs_since == row.started_at
            and known.asked_at > asyncio.get_running_loop().time() - _FRESH.total_seconds()
        )

    def _begin(self, row: Sandbox) -> asyncio.Task[None] | None:
        if self._of_tenants[row.tenant_id] >= _MOST_AT_ONCE:
            return None
        task = self._asking[row.id] = asyncio.create_task(self._refresh(row))
        self._of_tenants[row.tenant_id] += 1
        task.add_done_callback(lambda _: self._end(row))
        return task

    def _end(self, row: Sandbox) -> None:
        del self._asking[row.id]
        self._of_tenants[row.tenant_id] -= 1
        if not self._of_tenants[row.tenant_id]:
            del self._of_tenants[row.tenant_id]

    async def _refresh(self, row: Sandbox) -> None:
        asked_at = asyncio.get_running_loop().time()
        with suppress(SandboxError, *OUTAGES):
            used = self._reach_into(row)
            tools, agent, code_server, (now, error) = await asyncio.gather(
                self._ask_one(used, TOOLS_PORT, b"/health"),
                self._ask_one(used, AGENT_PORT, b"/health"),
                self._ask_one(used, CODE_SERVER_PORT, b"/healthz"),
                self._look_up(row),
            )
            is_ready = tools[0] is Answer.READY
            health = ServicesHealth(
                tool_server=read_tool_server(tools[1])
                if is_ready
                else ToolServerHealth(state=tools[0]),
                agent=agent[0],
                code_server=code_server[0],
                settings_error=error,
                checked_at=now,
            )
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
            answer = await upstream.answer()
            return answer.status, await _read(upstream)
        finally:
            self._pool.drop(upstream)


async def _read(upstream: Upstream) -> bytes:
    body, last = b"", False
    while not last and len(body) <= LARGEST_HEALTH:
        more, last = await upstream.body()
        body += more
    return body if last else b""


def _question(address: PortAddress, path: bytes) -> PassedRequest:
    lines = [
        b"GET %s HTTP/1.1" % path,
        b"Host: " + address.authority.encode(),
        b"Connection: close",
        *(b"%s: %s" % header for header in address.headers),
    ]
    return PassedRequest(
        head=b"\r\n".join([*lines, b"", b""]),
        method="GET",
        is_chunked=False,
        has_body=False,
        upgrade=None,
        is_repeatable=True,
    )
