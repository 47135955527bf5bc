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
    Availability,
    ServicesHealth,
    ToolServerHealth,
    parse_tool_server_health,
)

_TOOLS = "tool_server"
_ENDPOINTS = {
    _TOOLS: (TOOLS_PORT, b"/health"),
    "agent": (AGENT_PORT, b"/health"),
    "code_server": (CODE_SERVER_PORT, b"/healthz"),
}

_MAX_AGE = timedelta(seconds=2)
_WAIT = timedelta(milliseconds=150)
"""Maximum wait of a request for fresh results; later results are used by the next request."""
_TIMEOUT = timedelta(seconds=3)
_CACHE_SIZE = 10_000
_CONCURRENT_PER_TENANT = 16  # a tenant's sandboxes may be slow on purpose

_UNKNOWN = ServicesHealth()


@dataclass(frozen=True)
class _CacheEntry:
    running_since: datetime | None
    cached_at: float
    health: ServicesHealth


@dataclass(frozen=True)
class _Check:
    task: asyncio.Task[None]
    done: asyncio.Event
    """Set when all services that were reachable before have answered."""


class ServiceHealth:
    """Checks the services in running sandboxes, and caches the results for two seconds.

    Checks do not resume sandboxes and do not count as activity. Requests wait only briefly, and not for services that were
    unreachable the last time.
    """

    def __init__(self, sessions: Sessions, reach_into: Callable[[Sandbox], UsableSandbox]) -> None:
        self._sessions = sessions
        self._reach_into = reach_into
        self._pool = ConnectionPool()
        self._cache: OrderedDict[str, _CacheEntry] = OrderedDict()
        self._checks: dict[str, _Check] = {}
        self._checks_of_tenants: Counter[str] = Counter()

    def cached(self, row: Sandbox) -> ServicesHealth:
        """Return the cached health of a sandbox's services."""
        entry = self._cache.get(row.id)
        is_valid = row.state is State.RUNNING and entry and entry.running_since == row.started_at
        return entry.health if entry and is_valid else _UNKNOWN

    def view(self, row: Sandbox) -> ServicesRead | None:
        """Describe the services of a sandbox from the cache."""
        return view_services(row, self.cached(row))

    async def refresh(self, row: Sandbox) -> None:
        """Refresh the cached health, if the services answer promptly."""
        if not row.has_services or row.state is not State.RUNNING:
            return
        check = self._checks.get(row.id)
        if check is None and not self._is_fresh(row):
            check = self._start(row)
        if check is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT.total_seconds()):
                    await check.done.wait()

    def close(self) -> None:
        """Cancel all checks."""
        for check in self._checks.values():
            check.task.cancel()
        self._pool.close()

    def _is_fresh(self, row: Sandbox) -> bool:
        entry = self._cache.get(row.id)
        return (
            entry is not None
            and entry.running_since == row.started_at
            and entry.cached_at > asyncio.get_running_loop().time() - _MAX_AGE.total_seconds()
        )

    def _start(self, row: Sandbox) -> "_Check | None":
        if self._checks_of_tenants[row.tenant_id] >= _CONCURRENT_PER_TENANT:
            return None
        done = asyncio.Event()
        task = asyncio.create_task(self._check(row, done))
        check = self._checks[row.id] = _Check(task, done)
        self._checks_of_tenants[row.tenant_id] += 1
        task.add_done_callback(lambda _: self._finish(row))
        return check

    def _finish(self, row: Sandbox) -> None:
        self._checks.pop(row.id).done.set()
        self._checks_of_tenants[row.tenant_id] -= 1
        if not self._checks_of_tenants[row.tenant_id]:
            del self._checks_of_tenants[row.tenant_id]

    async def _check(self, row: Sandbox, done: asyncio.Event) -> None:
        """Check all services, and store the result of each as soon as it answers."""
        started_at, before = asyncio.get_running_loop().time(), self.cached(row)
        awaited = {
            name for name in _ENDPOINTS if getattr(before, name) is not Availability.UNREACHABLE
        }

        async def check_service(used: UsableSandbox, name: str) -> None:
            availability, body = await self._check_endpoint(used, *_ENDPOINTS[name])
            result = availability if name != _TOOLS else _tools_health(availability, body)
            self._store(row, started_at, **{name: result})
            awaited.discard(name)
            if not awaited:
                done.set()

        with suppress(SandboxError, *OUTAGES):
            used = self._reach_into(row)
            now, error = await self._find_settings_error(row)
            self._store(row, started_at, settings_error=error)
            await asyncio.gather(*(check_service(used, name) for name in _ENDPOINTS))
            self._store(row, started_at, checked_at=now)

    def _store(self, row: Sandbox, cached_at: float, **results: Any) -> None:
        health = replace(self.cached(row), **results)
        self._cache[row.id] = _CacheEntry(row.started_at, cached_at, health)
        self._cache.move_to_end(row.id)
        if len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)

    async def _find_settings_error(self, row: Sandbox) -> tuple[datetime, str | None]:
        """Return the database's time and why the services' settings were not written."""
        error = None
        async with without_transaction(self._sessions) as session:
            now = await SandboxRepository(session).clock()
            if row.services_digest is None:
                failure = await JobRepository(session).find_error(SERVICES, row.id)
                error = failure and failure.partition(": ")[2]
        return now, error

    async def _check_endpoint(
        self, used: UsableSandbox, port: int, path: bytes
    ) -> tuple[Availability, bytes]:
        address = used.backend.port_address(used.access, port)
        try:
            async with asyncio.timeout(_TIMEOUT.total_seconds()):
                status, body = await self._get(address, path)
        except (OSError, TimeoutError, UpstreamInvalid, UpstreamLost):
            return Availability.UNREACHABLE, b""
        if used.backend.find_refusal(address, status, body) is PortRefusal.GONE:
            return Availability.UNKNOWN, b""
        return (Availability.READY if status == HTTPStatus.OK else Availability.UNREACHABLE), body

    async def _get(self, address: PortAddress, path: bytes) -> tuple[int, bytes]:
        upstream = await self._pool.connect(address)
        try:
            upstream.start(_request_head(address, path))
            response = await upstream.response()
            return response.status, await _read(upstream)
        finally:
            self._pool.drop(upstream)


def _tools_health(availability: Availability, body: bytes) -> ToolServerHealth:
    if availability is Availability.READY:
        return parse_tool_server_health(body)
    return ToolServerHealth(state=availability)


async def _read(upstream: Upstream) -> bytes:
    body, last = b"", False
    while not last and len(body) <= LARGEST_HEALTH:
        more, last = await upstream.body()
        body += more
    return body if last else b""


def _request_head(address: PortAddress, path: bytes) -> RequestHead:
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
