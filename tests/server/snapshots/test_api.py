"""Lists of what was kept, of rows that are there without any provider."""

import pytest

from sandbox_server.db.models import Snapshot
from sandbox_server.domain.ids import new_id
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of
from tests.server.support.rows import add_backend, add_sandbox, find_tenant


@pytest.fixture
async def caller(app, make_key):
    async with caller_of(app, await make_key(scopes=["sandboxes"])) as caller:
        yield caller


async def test_snapshots__a_sandbox_without_snapshots_has_an_empty_list(caller, sessions):
    await add_backend(sessions)
    row = await add_sandbox(sessions, await find_tenant(sessions), backend="local")
    told = await caller.get(f"/v1/sandboxes/{row.id}/snapshots")
    assert told.json() == {"items": [], "next_cursor": None}


async def test_snapshots__are_listed_after_the_sandboxes_record_is_gone(caller, sessions):
    await add_backend(sessions)
    tenant_id, sandbox_id = await find_tenant(sessions), new_id()
    async with sessions.begin() as session:
        session.add(
            Snapshot(id=new_id(), tenant_id=tenant_id, sandbox_id=sandbox_id, backend="local")
        )
    [kept] = (await caller.get(f"/v1/sandboxes/{sandbox_id}/snapshots")).json()["items"]
    assert kept["sandbox_id"] == sandbox_id


async def test_snapshots__an_unknown_sandbox_has_no_list(caller):
    answer = await caller.get(f"/v1/sandboxes/{new_id()}/snapshots")
    assert_problem(answer, status=404, code="sandbox-not-found")


async def test_create__without_a_backend_fails_with_a_reason(caller):
    answer = await caller.post("/v1/sandboxes", json={})
    assert_problem(answer, status=503, code="no-backend")
