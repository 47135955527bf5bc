import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from benchmarks import fleet
from benchmarks.queues.postgres import running_postgres
from benchmarks.report import Figure
from benchmarks.stub.process import Stub, started_stub
from sandbox_server.db.models import Event, Sandbox
from sandbox_server.db.notifications import Notifications
from sandbox_server.db.schema_migrations import upgrade
from sandbox_server.db.session import Sessions, create_engine, create_sessions
from sandbox_server.domain.state import State
from sandbox_server.jobs import kinds
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.lifecycle import build_reconciliation
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.registry import Backends, KnownBackend
from sandbox_server.sandboxes.admission import Admission
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.vault import KEY_LENGTH, Vault

_SANDBOXES = 10_000
_WITHIN = timedelta(minutes=1)
_LEAD = timedelta(seconds=3)
_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 180
_DONE = (State.PAUSED, State.STOPPED)


@dataclass(frozen=True)
class Lags:
    """List each sandbox's delay after its deadline in milliseconds."""

    asked: Sequence[float]
    written: Sequence[float]


async def deadlines(
    sandboxes: int = _SANDBOXES, within: timedelta = _WITHIN
) -> AsyncIterator[Figure]:
    """Expire many sandboxes within a minute, and measure the delays."""
    with running_postgres() as url:
        async with started_stub() as stub:
            lags = await _drain(url, stub, sandboxes, within)
    title = f"{sandboxes} deadlines in {within.total_seconds():g} s, p99 lag"
    yield Figure(f"{title}, provider asked", _p99(lags.asked), "ms", target=1000)
    yield Figure(f"{title}, row written", _p99(lags.written), "ms", target=1000)


async def _drain(url: str, stub: Stub, sandboxes: int, within: timedelta) -> Lags:
    engine = create_engine(url)
    await upgrade(engine)
    sessions = create_sessions(engine)
    vault = Vault([os.urandom(KEY_LENGTH)])
    backend = E2BBackend(stub.endpoint(), installation_id="benchmark")
    backends = Backends({backend.name: KnownBackend(client=backend)})
    created = await fleet.create(backend, sandboxes)
    # All are stored before the first is due.
    running = fleet.spread(created, first_at=datetime.now(UTC) + _LEAD, within=within)
    await fleet.record(sessions, vault, running, backend=backend.name)
    notifications = Notifications(engine)
    Changes(notifications)
    handlers = {
        kinds.SANDBOX: build_reconciliation(sessions, backends, vault).reconciler.reconcile,
        kinds.ADMISSION: Admission(sessions).admit_queued,
    }
    scheduler = SandboxQueueScheduler(sessions, handlers, notifications)
    async with asyncio.TaskGroup() as group:
        hearing = group.create_task(notifications.run())
        group.create_task(scheduler.run())
        await _wait_done(sessions, sandboxes)
        scheduler.stop()
        hearing.cancel()
    arrivals = await stub.arrivals("pause") | await stub.arrivals("kill")
    lags = Lags(
        asked=_lags({one.access.provider_id: one.until for one in running}, arrivals),
        written=_lags({one.id: one.until for one in running}, await _written(sessions)),
    )
    await backends.close()
    await engine.dispose()
    return lags


async def _wait_done(sessions: Sessions, sandboxes: int) -> None:
    done: int | None = 0
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while done != sandboxes:
            await asyncio.sleep(_LOOK_SECONDS)
            async with sessions() as session:
                done = await session.scalar(
                    select(func.count()).select_from(Sandbox).where(Sandbox.state.in_(_DONE))
                )


async def _written(sessions: Sessions) -> Mapping[str, float]:
    ends = [f"sandbox.{state}" for state in _DONE]
    async with sessions() as session:
        rows = await session.execute(
            select(Event.sandbox_id, Event.created_at).where(Event.type.in_(ends))
        )
        return {sandbox_id: at.timestamp() for sandbox_id, at in rows if sandbox_id is not None}


def _lags(due: Mapping[str, datetime], happened: Mapping[str, float]) -> list[float]:
    return [(happened[id_] - at.timestamp()) * 1000 for id_, at in due.items()]


def _p99(lags: Iterable[float]) -> float:
    ordered = sorted(lags)
    return ordered[len(ordered) * 99 // 100]
