"""What admission asks costs the same however many sandboxes there have been."""

import pytest
from sqlalchemy import text

from sandbox_server.sandboxes.admission import Admission
from sandbox_server.sandboxes.repositories.capacity import CapacityRepository
from tests.server.support.databases import EVERY_POSTGRES
from tests.server.support.query_plans import explain, rows_read, vacuum
from tests.server.support.sandbox_rows import add, backend, tenant

pytestmark = EVERY_POSTGRES

# Half of them have ended, nearly all others are paused, 20 run, and 200 wait.
_MANY_SANDBOXES = text(
    "INSERT INTO sandboxes (id, tenant_id, template, backend, candidates, state, target, timeout,"
    " queued_at, ended_at)"
    " SELECT lpad(n::text, 20, '0'), 't' || n % 10, 'base', CASE WHEN n > 200 THEN 'local' END,"
    " '{local}', state, target, '1 hour', clock_timestamp() + n * interval '1 second',"
    " CASE WHEN state = 'stopped' THEN clock_timestamp() END"
    " FROM generate_series(1, 100000) AS n, LATERAL (SELECT"
    " CASE WHEN n <= 200 THEN 'queued' WHEN n <= 220 THEN 'running' WHEN n % 2 = 0 THEN 'paused'"
    " ELSE 'stopped' END,"
    " CASE WHEN n <= 220 THEN 'running' WHEN n % 2 = 0 THEN 'paused' ELSE 'gone' END)"
    " AS life (state, target)"
)


@pytest.fixture
async def many_sandboxes(database, sessions):
    tenants = [tenant(f"t{number}") for number in range(10)]
    await add(sessions, *tenants, backend(capacity=23), backend("idle"))
    async with sessions.begin() as session:
        await session.execute(_MANY_SANDBOXES)
    await vacuum(database, "sandboxes", "tenants", "backends")
    return database


async def test_admission__query_plan_skips_unrelated_sandboxes(many_sandboxes, sessions):
    async def admit(session):
        assert len(await Admission(sessions).admit(session, ["local"])) == 3

    plans = await explain(many_sandboxes, admit)

    assert max(rows_read(plan, "sandboxes") for plan in plans) <= 220


async def test_queue__query_plan_finds_queued_sandboxes_by_index(many_sandboxes):
    async def look(session):
        rooms = await CapacityRepository(session).lock_waited_for("idle")
        assert [room.backend for room in rooms] == ["idle", "local"]

    plans = await explain(many_sandboxes, look)

    assert max(rows_read(plan, "sandboxes") for plan in plans) <= 220


async def test_capacity__query_plan_counts_slots_of_paused_sandboxes_by_index(
    many_sandboxes, sessions
):
    await add(sessions, backend("keeping", paused_takes_place=True))

    async def look(session):
        [room] = await CapacityRepository(session).find(["keeping"])
        assert room.free == room.capacity

    plans = await explain(many_sandboxes, look)

    assert max(rows_read(plan, "sandboxes") for plan in plans) <= 220
