from random import Random

import pytest

from sandbox_server.domain.fair_share import QueuedSandbox, TenantShare, allocate
from sandbox_server.domain.state import State
from sandbox_server.sandboxes.admission import Admission
from tests.server.support.sandbox_rows import HOUR, add, backend, now, read, sandbox, tenant

BACKENDS = ("x", "y", "z")
TENANTS = ("a", "b", "c", "d")
KEEPING = "z"  # where paused sandboxes keep their places


@pytest.mark.parametrize("seed", range(12))
async def test_queue_order__reads_no_more_rows_than_decide_who_is_next(sessions, seed):
    """Whom admission lets in is whom it would let in if it read all who wait."""
    chance = Random(seed)
    capacity = {name: chance.randint(0, 12) for name in BACKENDS}
    quota = {tenant_id: chance.randint(0, 10) for tenant_id in TENANTS}
    since = now() - HOUR
    running = [any_sandbox(chance, State.RUNNING, since=since) for _ in range(chance.randint(0, 9))]
    waiting = [any_waiting(chance, since=since) for _ in range(60)]
    await add(
        sessions,
        *(tenant(tenant_id, max_running=most) for tenant_id, most in quota.items()),
        *(backend(n, capacity=capacity[n], paused_takes_place=n == KEEPING) for n in BACKENDS),
        *chance.sample([*running, *waiting], k=len(running) + len(waiting)),
    )

    async with sessions.begin() as session:
        await Admission(sessions).admit(session, BACKENDS)

    kept = [row for row in waiting if row.state is State.PAUSED and row.backend == KEEPING]
    turns = allocate(
        map(seen, waiting),
        free={name: capacity[name] - count(running + kept, backend=name) for name in BACKENDS},
        shares={
            tenant_id: TenantShare(
                slots=count(running + kept, tenant_id=tenant_id),
                left=quota[tenant_id] - count(running, tenant_id=tenant_id),
            )
            for tenant_id in TENANTS
        },
    )
    after = await read(sessions, *waiting)
    admitted = {row.id: row.backend for row in after if row.generation}
    assert admitted == {turn.id: turn.backend for turn in turns}


def any_sandbox(chance, state, *, since, **columns):
    return sandbox(
        state,
        tenant_id=chance.choice(TENANTS),
        priority=chance.randint(0, 2),
        since=since + chance.randint(0, 30) * HOUR / 3600,
        candidates=chance.sample(BACKENDS, chance.randint(1, 3)),
        **columns,
    )


def any_waiting(chance, *, since):
    resumes = chance.random() < 0.3
    state = State.PAUSED if resumes else State.QUEUED
    return any_sandbox(chance, state, since=since, waits_again=resumes)


def seen(row):
    resumes = row.state is State.PAUSED
    return QueuedSandbox(
        id=row.id,
        tenant_id=row.tenant_id,
        priority=row.priority,
        queued_at=row.queued_at,
        backends=(row.backend,) if resumes else tuple(row.candidates),
        keeps_slot=resumes and row.backend == KEEPING,
    )


def count(rows, **columns):
    return sum(all(getattr(row, k) == value for k, value in columns.items()) for row in rows)
