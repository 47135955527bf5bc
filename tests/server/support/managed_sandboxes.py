"""Sandboxes on a real database at a real provider, and what tests do to them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from e2b import AsyncSandbox
from sqlalchemy import delete, select, update

from sandbox_server.db.models import Backend, Event, Job, Sandbox, Tenant
from sandbox_server.db.session import Sessions
from sandbox_server.domain.deadlines import DEFAULT_RULES, Deadlines, Rules, admit, queue
from sandbox_server.domain.errors import BackendError
from sandbox_server.domain.events import Actor, Cause
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs import kinds
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.lifecycle import Reconciliation, build_drift_checker, build_reconciliation
from sandbox_server.log.events import EventRepository
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.registry import Backends, KnownBackend
from sandbox_server.sandboxes.drift.checker import INTERVALS, CheckIntervals, DriftChecker
from sandbox_server.sandboxes.drift.liveness import TIMEOUTS, LivenessTimeouts
from sandbox_server.sandboxes.observation import Observation
from sandbox_server.sandboxes.reconciler import Reconciler
from sandbox_server.sandboxes.repositories.sandboxes import (
    SandboxRepository,
    deadlines_of,
    set_deadlines,
)
from sandbox_server.sandboxes.services.encrypted_columns import open_access
from sandbox_server.vault import Vault

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SOON = timedelta(seconds=5)
WISH = TransitionCause(
    cause=Cause.REQUEST, actor=Actor(kind="key", id="a-key"), reason="A test wants it."
)


@dataclass(frozen=True)
class Living:
    """One tenant's sandboxes at one provider, looked after by one server."""

    sessions: Sessions
    backends: Backends
    vault: Vault
    core: Reconciliation
    tenant_id: str
    backend_name: str

    @property
    def reconciler(self) -> Reconciler:
        return self.core.reconciler

    def drift_checker(
        self,
        *,
        intervals: CheckIntervals = INTERVALS,
        timeouts: LivenessTimeouts = TIMEOUTS,
    ) -> DriftChecker:
        return build_drift_checker(
            self.sessions,
            self.backends,
            self.vault,
            self.core,
            intervals=intervals,
            timeouts=timeouts,
        )

    @property
    def backend(self) -> E2BBackend:
        backend = self.backends[self.backend_name]
        assert isinstance(backend, E2BBackend)
        return backend

    async def queued(self, *, wait: timedelta | None = None, **columns: Any) -> str:
        """Commit a sandbox that waits for a place."""
        columns = {"template": "base", "timeout": HOUR, **columns}
        row = Sandbox(
            id=new_id(),
            tenant_id=self.tenant_id,
            candidates=[self.backend_name],
            state=State.QUEUED,
            target=Target.RUNNING,
            wish=WISH.document(),
            **columns,
        )
        async with self.sessions.begin() as session:
            now = await SandboxRepository(session).add(row)
            await session.refresh(row)
            set_deadlines(row, queue(deadlines_of(row), now, wait=wait))
        return row.id

    async def admitted(self, **columns: Any) -> str:
        """Commit a sandbox that has got its place, and whose start nobody has begun."""
        sandbox_id = await self.queued(**columns)
        await self.let_in(sandbox_id)
        return sandbox_id

    async def let_in(self, sandbox_id: str) -> None:
        """Give it a place, as admission does: to start or to resume."""
        async with self.sessions.begin() as session:
            row, now = await SandboxRepository(session).lock(sandbox_id)
            if row.state is State.QUEUED:
                set_deadlines(row, admit(deadlines_of(row), now))
            else:
                row.state = State.RESUMING
            row.backend = self.backend_name
            row.generation += 1
            await JobRepository(session).due(kinds.SANDBOX, sandbox_id)

    async def started(self, **columns: Any) -> str:
        sandbox_id = await self.admitted(**columns)
        await self.settle(sandbox_id)
        assert (await self.row(sandbox_id)).state is State.RUNNING
        return sandbox_id

    async def paused(self, **columns: Any) -> str:
        sandbox_id = await self.started(**columns)
        await self.want(sandbox_id, Target.PAUSED)
        await self.settle(sandbox_id)
        assert (await self.row(sandbox_id)).state is State.PAUSED
        return sandbox_id

    async def want(
        self, sandbox_id: str, target: Target, *, wish: TransitionCause = WISH
    ) -> Sandbox:
        """Commit what somebody wants of it from now on."""
        async with self.sessions.begin() as session:
            row, _ = await SandboxRepository(session).lock(sandbox_id)
            row.target, row.wish = target, wish.document()
            row.wanted += 1
            await JobRepository(session).due(kinds.SANDBOX, sandbox_id)
        return row

    async def change(self, sandbox_id: str, **columns: Any) -> None:
        async with self.sessions.begin() as session:
            await session.execute(update(Sandbox).where(Sandbox.id == sandbox_id).values(**columns))

    async def pass_time(self, sandbox_id: str, duration: timedelta) -> None:
        """Let everything about it have happened, and be due, that much earlier."""
        instants = [
            column for column in Sandbox.__table__.columns if column.type.python_type is datetime
        ]
        earlier = {column.key: column - duration for column in instants}
        await self.change(sandbox_id, **earlier)

    async def lease(self, sandbox_id: str, *, lease: timedelta = HOUR) -> LeasedJob:
        async with self.sessions.begin() as session:
            job = await JobRepository(session).lease(
                kinds.SANDBOX, sandbox_id, worker="a", lease=lease
            )
        assert job is not None
        return job

    async def lapse(self, job: LeasedJob) -> None:
        """Let a lease end as that of a server which does not live any more."""
        async with self.sessions.begin() as session:
            await session.execute(
                update(Job).where(Job.id == job.id).values(leased_until=Job.created_at)
            )

    async def is_due(self, sandbox_id: str) -> bool:
        job = await self.job(kinds.SANDBOX, sandbox_id)
        return job is not None and job.run_at is not None and job.run_at <= await self.now()

    async def forget(self, sandbox_id: str) -> None:
        """Lose its row, as a database does that is restored from an older backup."""
        async with self.sessions.begin() as session:
            await session.execute(delete(Sandbox).where(Sandbox.id == sandbox_id))

    async def settle(
        self, sandbox_id: str, *, attempt: int = 1, context: Observation | None = None
    ) -> datetime | None:
        """Have done what is due of it, once; gives when to look again."""
        job = await self.lease(sandbox_id)
        try:
            at = await self.reconciler.reconcile(replace(job, attempts=attempt, context=context))
        except BaseException:
            async with self.sessions.begin() as session:
                await JobRepository(session).release(job)
            raise
        async with self.sessions.begin() as session:
            await JobRepository(session).ack(job, at)
        return at

    async def settle_at_last(self, sandbox_id: str) -> datetime | None:
        """Settle it as often as it takes, as the queue does."""
        for _ in range(5):
            with suppress(BackendError):
                at = await self.settle(sandbox_id)
                if at is None or at > (await self.now()) + SOON:
                    return at
        raise AssertionError(f"not settled: {await self.states(sandbox_id)}")

    async def now(self) -> datetime:
        async with self.sessions() as session:
            return await SandboxRepository(session).clock()

    async def row(self, sandbox_id: str) -> Sandbox:
        async with self.sessions() as session:
            found = await SandboxRepository(session).find(sandbox_id)
        assert found is not None
        return found[0]

    async def deadlines(self, sandbox_id: str) -> Deadlines:
        return deadlines_of(await self.row(sandbox_id))

    async def events(self, sandbox_id: str) -> Sequence[Event]:
        async with self.sessions() as session:
            return await EventRepository(session).list_page(
                self.tenant_id, sandbox_id=sandbox_id, limit=1000
            )

    async def states(self, sandbox_id: str) -> list[str]:
        """List what it was told to have become."""
        return [event.type.removeprefix("sandbox.") for event in await self.events(sandbox_id)]

    async def job(self, kind: str, subject: str) -> Job | None:
        async with self.sessions() as session:
            found = select(Job).where(Job.kind == kind, Job.subject == subject)
            return await session.scalar(found)

    async def inside(self, sandbox_id: str) -> AsyncSandbox:
        """Reach into it with what its row keeps."""
        sealed = (await self.row(sandbox_id)).access_sealed
        assert sealed is not None
        return self.backend.handle(open_access(self.vault, sandbox_id, sealed))

    async def provider_states(self) -> list[str]:
        """List what the provider has, as it sees it."""
        return sorted(one.state for one in await self.backend.list_all())


async def new_living(
    sessions: Sessions, backend: E2BBackend, *, rules: Rules = DEFAULT_RULES, capacity: int = 100
) -> Living:
    """Make a tenant and a provider known to the database, and a server that looks after them."""
    tenant_id = new_id()
    async with sessions.begin() as session:
        session.add(Tenant(id=tenant_id, name=tenant_id, max_running=100, max_queued=100))
        session.add(Backend(name=backend.name, capacity=capacity, state="up"))
    return living_at(sessions, backend, tenant_id=tenant_id, rules=rules)


def living_at(
    sessions: Sessions, backend: E2BBackend, *, tenant_id: str, rules: Rules = DEFAULT_RULES
) -> Living:
    """Look after them as another server does, which may reach the provider by another way."""
    backends = Backends({backend.name: KnownBackend(client=backend, rules=rules)})
    vault = Vault([b"k" * 32])
    return Living(
        sessions=sessions,
        backends=backends,
        vault=vault,
        core=build_reconciliation(sessions, backends, vault),
        tenant_id=tenant_id,
        backend_name=backend.name,
    )
