import pytest

from sandbox_server.db.models import Job
from sandbox_server.domain.state import State, Target
from tests.server.support.api_fixtures import caller_of
from tests.server.support.rows import add_backend, add_sandbox, find_tenant, now


@pytest.fixture
async def tenant_id(admin, sessions):
    return await find_tenant(sessions)


@pytest.fixture
async def dead_job(sessions):
    """Mark a job as dead."""
    async with sessions.begin() as session:
        job = Job(kind="sandbox", subject="x", attempts=9, last_error="It broke.", dead_at=now())
        session.add(job)
    return job


async def test_dead_jobs__are_listed_with_their_last_error_and_can_be_retried(admin, dead_job):
    [told] = (await admin.get("/v1/jobs", params={"state": "dead"})).json()["items"]
    assert told["id"] == dead_job.id
    assert told["last_error"] == "It broke."
    assert told["state"] == "dead"
    assert (await admin.post(f"/v1/jobs/{dead_job.id}/retry")).status_code == 204
    assert (await admin.get("/v1/jobs")).json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("job_id", ["1", "-1", "x", "9" * 19, "9" * 40])
async def test_dead_jobs__an_unknown_job_is_not_found(admin, job_id):
    answer = await admin.post(f"/v1/jobs/{job_id}/retry")
    assert answer.status_code == 404
    assert answer.json()["code"] == "job-not-found"


async def test_dead_jobs__only_admins_can_list_them(app, make_key, dead_job):
    async with caller_of(app, await make_key(scopes=["sandboxes"])) as operator:
        assert (await operator.get("/v1/jobs")).status_code == 403
        assert (await operator.post(f"/v1/jobs/{dead_job.id}/retry")).status_code == 403


async def test_stats__count_slots_states_and_queued_sandboxes(admin, sessions, tenant_id, dead_job):
    await add_backend(sessions, capacity=4)
    await add_sandbox(sessions, tenant_id, backend="local")
    await add_sandbox(sessions, tenant_id, backend="local", state=State.STARTING)
    await add_sandbox(
        sessions,
        tenant_id,
        backend="local",
        state=State.PAUSED,
        target=Target.PAUSED,
        expires_at=None,
    )
    await add_sandbox(
        sessions, tenant_id, candidates=["local"], state=State.QUEUED, expires_at=None
    )
    await add_sandbox(
        sessions,
        tenant_id,
        backend="local",
        state=State.STOPPED,
        target=Target.GONE,
        ended_at=now(),
    )

    told = (await admin.get("/v1/stats")).json()

    [backend], [tenant] = told["backends"], told["tenants"]
    states = {"running": 1, "starting": 1, "paused": 1, "queued": 1}
    assert backend["sandboxes"] == tenant["sandboxes"] == states
    assert backend["taken"] == tenant["taken"] == 2
    assert backend["queue"]["depth"] == tenant["queue"]["depth"] == 1
    assert backend["queue"]["oldest_age_s"] >= 0
    assert backend["capacity"] == 4
    assert told["jobs_dead"] == 1


async def test_stats__a_paused_sandbox_occupies_a_slot_if_it_keeps_its_memory(
    admin, sessions, tenant_id
):
    await add_backend(sessions, paused_takes_place=True)
    paused = {"state": State.PAUSED, "target": Target.PAUSED, "expires_at": None}
    await add_sandbox(sessions, tenant_id, backend="local", **paused)
    [backend] = (await admin.get("/v1/stats")).json()["backends"]
    assert backend["taken"] == 1


async def test_stats__only_admins_see_other_tenants(app, admin, make_key, sessions, tenant_id):
    await add_backend(sessions, state="down", state_reason="It is off.", drained=True)
    await add_sandbox(sessions, tenant_id, backend="local")
    secret = await make_key(tenant="other", scopes=["read"])
    assert {one["name"] for one in (await admin.get("/v1/stats")).json()["tenants"]} == {
        "default",
        "other",
    }
    async with caller_of(app, secret) as other:
        told = (await other.get("/v1/stats")).json()
    [backend], [tenant] = told["backends"], told["tenants"]
    assert tenant["name"] == "other"
    assert backend["sandboxes"] == tenant["sandboxes"] == {}
    assert backend["taken"] == 0
    assert (backend["state"], backend["state_reason"], backend["drained"]) == (
        "down",
        "It is off.",
        True,
    )
    assert told["jobs_dead"] is None
