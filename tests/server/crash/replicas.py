"""Two servers on one database and one provider, one of which is killed at a step that the test chooses."""

import asyncio
import base64
import json
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import func, select, update

from sandbox_server.db.installation import InstallationRepository
from sandbox_server.db.models import Backend, Job, Sandbox, Snapshot, Tenant
from sandbox_server.db.session import Sessions
from sandbox_server.domain.deadlines import Rules
from sandbox_server.domain.due import next_due
from sandbox_server.domain.state import State, may_follow, serves
from sandbox_server.jobs.kinds import DRIFT_CHECK, HOUSEKEEPING, SANDBOX
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.provider import Endpoint
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of
from sandbox_server.sandboxes.services.settings_file import SETTINGS_FILE
from tests.engine.engine_process import EngineProcess
from tests.engine.polling import until
from tests.server.crash.postgres import PostgresProxy
from tests.server.crash.walk import Lost, Walk
from tests.server.support.fault_proxy import Exchange, Fault, FaultyProxy
from tests.server.support.managed_sandboxes import HOUR, Living, living_at
from tests.server.support.server_process import ServerProcess, server_process

LEASE = timedelta(seconds=3)
LONGEST_RUN = HOUR
_PLACES = 100
_CREATE = "/v2/sandboxes"


@dataclass
class Replicas:
    """What happens to the sandboxes of one installation, and the two servers that look after it."""

    victim: ServerProcess
    survivor: ServerProcess
    living: Living
    engine: EngineProcess
    database: PostgresProxy
    provider: FaultyProxy
    foreign_snapshots: frozenset[str]
    """What the provider has of others."""

    @property
    def sessions(self) -> Sessions:
        return self.living.sessions

    def __post_init__(self) -> None:
        self._refusals: list[Fault] = []
        self.provider.on("", self._step, times=10**6)

    def walk(self, walk: Walk, *, first_create: Fault | None = None) -> None:
        """Have the victim's next steps counted; something else may come of its first create."""
        self.database.walk = walk
        self._refusals = [first_create] if first_create else []

    async def _step(self, exchange: Exchange) -> None:
        method, _, path = exchange.line.partition(" ")
        if method == "GET":
            await exchange.relay()
            return
        walk = self.database.walk
        refuse = self._refusals.pop() if self._refusals and path == _CREATE else None
        try:
            is_held = await walk.call(f"{method} {path.rpartition('/')[2]}")
        except Lost:
            exchange.hang_up()
            return
        answer = b"" if refuse else await exchange.pass_on()
        if is_held:
            await walk.answered()
        await (refuse(exchange) if refuse else exchange.answer(answer))

    def freeze(self) -> None:
        """Let the survivor do nothing, so that all there is to do is the victim's."""
        _signal(self.survivor, signal.SIGSTOP)

    def thaw(self) -> None:
        _signal(self.survivor, signal.SIGCONT)

    def kill(self) -> None:
        """End the victim in the middle of whatever it is at."""
        _signal(self.victim, signal.SIGKILL)
        self.victim.wait()

    async def restart(self) -> None:
        self.walk(Walk())
        await asyncio.to_thread(self.victim.start)

    async def ask(
        self, server: ServerProcess, method: str, path: str, **request: Any
    ) -> dict[str, Any]:
        async with server.client() as caller:
            answer = await caller.request(method, f"/v1/sandboxes{path}", **request)
        assert answer.is_success, answer.text
        body: dict[str, Any] = answer.json() if answer.content else {}
        return body

    async def create(self, **fields: Any) -> str:
        """Have a sandbox run."""
        made = await self.ask(self.survivor, "POST", "", json=fields)
        assert made["state"] == "running"
        return str(made["id"])

    async def settings(self, sandbox_id: str) -> dict[str, Any]:
        """Read what the services in a sandbox are told."""
        body = {"sandbox_id": sandbox_id, "command": f"cat {SETTINGS_FILE}"}
        async with self.survivor.client() as caller:
            answer = await caller.post("/sandboxes/run-command", json=body)
        assert answer.is_success, answer.text
        settings: dict[str, Any] = json.loads(answer.json()["output"])
        return settings

    async def rows(self) -> Sequence[Sandbox]:
        """List the sandboxes that have not ended, oldest first."""
        living = select(Sandbox).where(Sandbox.ended_at.is_(None)).order_by(Sandbox.id)
        async with self.sessions() as session:
            return (await session.scalars(living)).all()

    async def snapshots(self) -> Sequence[Snapshot]:
        async with self.sessions() as session:
            return (await session.scalars(select(Snapshot).order_by(Snapshot.id))).all()

    async def set_capacity(self, capacity: int) -> None:
        async with self.sessions.begin() as session:
            await session.execute(update(Backend).values(capacity=capacity))

    async def have_due(self, sandbox_id: str) -> None:
        """Have a sandbox looked at, as if the instant of its job had come."""
        async with self.sessions.begin() as session:
            await JobRepository(session).due(SANDBOX, sandbox_id)

    async def have_quiet(self) -> None:
        """Wait until nothing is left to do; what is only a matter of routine is put off."""
        await until(self._is_quiet, timeout=60)

    async def _is_quiet(self) -> bool:
        routine = update(Job).where(
            Job.kind.in_([DRIFT_CHECK, HOUSEKEEPING]), Job.leased_by.is_(None)
        )
        async with self.sessions.begin() as session:
            await session.execute(routine.values(run_at=func.now() + HOUR))
        return await self.are_idle()

    async def are_idle(self) -> bool:
        """Tell whether no server is at anything, or should be."""
        now = func.clock_timestamp()
        due = select(Job.id).where(Job.leased_by.is_not(None) | (Job.run_at <= now))
        async with self.sessions() as session:
            return (await session.scalars(due.limit(1))).first() is None

    async def are_settled(self) -> bool:
        """Tell whether every sandbox is what is wanted, and no server is at anything."""
        rows = await self.rows()
        return all(serves(row.state, row.target) for row in rows) and await self.are_idle()

    async def patrol(self) -> None:
        """Have what the provider has compared with the records."""
        async with self.sessions.begin() as session:
            await JobRepository(session).due(DRIFT_CHECK, self.living.backend_name)

    async def delete_all(self) -> None:
        for row in await self.rows():
            await self.ask(self.survivor, "DELETE", f"/{row.id}")
        for snapshot in await self.snapshots():
            async with self.survivor.client() as caller:
                await caller.delete(f"/v1/snapshots/{snapshot.id}")
        await self.have_quiet()

    async def require_whole(self) -> None:
        """Check that nothing is lost, leaked, stuck or forgotten."""
        rows = await self.rows()
        there = {one.id: one.state.value for one in await self.living.backend.list_all()}
        assert there == {row.backend_sandbox_id: row.state for row in rows}
        await self._require_snapshots()
        async with self.sessions() as session:
            jobs = {(job.kind, job.subject): job for job in await session.scalars(select(Job))}
            assert not [key for key, job in jobs.items() if job.dead_at or job.leased_by]
        for row in rows:
            await self._require_looked_after(row, jobs[SANDBOX, row.id])

    async def _require_snapshots(self) -> None:
        kept = {row.backend_snapshot_id for row in await self.snapshots()}
        assert await _snapshots_at(self.engine) - self.foreign_snapshots == kept

    async def _require_looked_after(self, row: Sandbox, job: Job) -> None:
        assert row.state_reason
        due = next_due(deadlines_of(row), await self.living.now(), rules=_RULES)
        assert due is not None
        assert job.run_at is not None
        assert job.run_at <= due.at
        told = [State(one) for one in await self.living.states(row.id) if one in set(State)]
        assert told[-1] is row.state
        assert all(may_follow(before, after) for before, after in pairwise(told))


_RULES = Rules(longest_run=LONGEST_RUN)


def _signal(server: ServerProcess, number: signal.Signals) -> None:
    for pid in server.children:  # the server proper; its parent only waits for it
        os.kill(pid, number)


async def _snapshots_at(engine: EngineProcess) -> frozenset[str]:
    return frozenset(one["snapshotID"] for one in await engine.ask("/snapshots"))


@asynccontextmanager
async def two_servers(
    database_url: str, sessions: Sessions, engine: EngineProcess
) -> AsyncIterator[Replicas]:
    """Start both, and leave nothing of theirs at the provider."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(PostgresProxy(database_url))
        provider = await stack.enter_async_context(FaultyProxy(engine.port))
        backend = await _backend(sessions, engine)
        stack.push_async_callback(_sweep, backend)
        keys = base64.b64encode(secrets.token_bytes(32)).decode()
        victim, survivor = (
            stack.enter_context(server_process(variables=_variables(keys, url, engine, api_url)))
            for url, api_url in ((database.url, provider.url), (database_url, engine.url))
        )
        await asyncio.to_thread(victim.start)
        survivor.state_dir.mkdir()
        shutil.copy(victim.state_dir / "admin.key", survivor.state_dir)
        await asyncio.to_thread(survivor.start)
        async with sessions() as session:
            tenant_id = (await session.scalars(select(Tenant.id))).one()
        yield Replicas(
            victim=victim,
            survivor=survivor,
            living=living_at(sessions, backend, tenant_id=tenant_id),
            engine=engine,
            database=database,
            provider=provider,
            foreign_snapshots=await _snapshots_at(engine),
        )


@dataclass
class Served:
    """One server, and what there is at a provider that it reaches through a proxy."""

    server: ServerProcess
    living: Living
    provider: FaultyProxy

    async def rows(self) -> Sequence[Sandbox]:
        async with self.living.sessions() as session:
            return (await session.scalars(select(Sandbox))).all()


@asynccontextmanager
async def one_server(
    database_url: str, sessions: Sessions, engine: EngineProcess
) -> AsyncIterator[Served]:
    """Start one, and leave nothing of its at the provider."""
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(FaultyProxy(engine.port))
        backend = await _backend(sessions, engine)
        stack.push_async_callback(_sweep, backend)
        keys = base64.b64encode(secrets.token_bytes(32)).decode()
        variables = _variables(keys, database_url, engine, provider.url)
        server = stack.enter_context(server_process(variables=variables))
        await asyncio.to_thread(server.start)
        async with sessions() as session:
            tenant_id = (await session.scalars(select(Tenant.id))).one()
        yield Served(server, living_at(sessions, backend, tenant_id=tenant_id), provider)


def _variables(keys: str, database_url: str, engine: EngineProcess, api_url: str) -> dict[str, str]:
    backend = {
        "name": "local",
        "api_key": engine.api_key,
        "api_url": api_url,
        "sandbox_url": engine.url,
        "capacity": _PLACES,
        "max_continuous_run_s": int(LONGEST_RUN.total_seconds()),
    }
    return {
        "DATABASE_URL": database_url,
        "SANDBOX_SERVER_BACKENDS": json.dumps([backend]),
        "SANDBOX_SERVER_ENCRYPTION_KEYS": keys,
        "SANDBOX_SERVER_LEASE_S": str(int(LEASE.total_seconds())),
    }


async def _backend(sessions: Sessions, engine: EngineProcess) -> E2BBackend:
    """Reach the provider as the installation whose database this is."""
    async with sessions.begin() as session:
        installation = await InstallationRepository(session).find_or_make()
    endpoint = Endpoint(
        name="local",
        api_url=engine.url,
        api_key=engine.api_key,
        sandbox_url=engine.url,
        domain="localhost",
    )
    return E2BBackend(endpoint, installation_id=installation.id)


async def _sweep(backend: E2BBackend) -> None:
    for left in await backend.list_all():
        await backend.kill(left.id)
    await backend.close()
