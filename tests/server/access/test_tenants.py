import asyncio

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from sandbox_server.db.models import Job
from sandbox_server.domain.ids import new_id
from sandbox_server.providers.registry import open_backends
from sandbox_server.providers.settings import BackendSettings
from tests.server.http.test_problems import assert_problem

ALL = {
    "max_running": 3,
    "max_queued": 7,
    "defaults": {"template": "base", "timeout_s": 60, "on_timeout": "delete"},
    "rules": [
        {"match": {"agent_type": "ci-fix"}, "template": "ci", "resources": {"cpu_count": 4}},
        {"match": {}, "idle_timeout_s": 30},
    ],
}


@pytest.fixture
async def backends():
    """Configure two providers that are never called."""
    named = [BackendSettings(name=name, api_key=SecretStr("k")) for name in ("one", "other")]
    backends = open_backends(named, installation_id=new_id())
    yield backends
    await backends.close()


async def test_tenants__put_creates_and_then_replaces(admin):
    made = await admin.put("/v1/tenants/team", json=ALL)
    assert made.status_code == 201
    replaced = await admin.put("/v1/tenants/team", json={"max_running": 1})
    assert replaced.status_code == 200
    assert replaced.json()["id"] == made.json()["id"]
    assert replaced.json()["rules"] == []
    assert (await admin.get("/v1/tenants/team")).json() == replaced.json()


async def test_tenants__get_returns_what_was_put(admin):
    await admin.put("/v1/tenants/team", json=ALL)
    told = (await admin.get("/v1/tenants/team")).json()
    assert (told["max_running"], told["max_queued"]) == (3, 7)
    assert told["defaults"]["timeout_s"] == 60
    assert told["rules"][0]["match"]["agent_type"] == "ci-fix"


async def test_tenants__concurrent_requests_create_a_tenant_once(admin):
    answers = await asyncio.gather(*(admin.put("/v1/tenants/team", json=ALL) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]


async def test_tenants__the_list_has_pages(admin):
    for name in ("b", "a", "c"):
        await admin.put(f"/v1/tenants/{name}", json={})
    first = (await admin.get("/v1/tenants?limit=3")).json()
    rest = (await admin.get(f"/v1/tenants?cursor={first['next_cursor']}")).json()
    assert [tenant["name"] for tenant in first["items"] + rest["items"]] == [
        "default",
        "b",
        "a",
        "c",
    ]
    assert rest["next_cursor"] is None


async def test_tenants__an_unknown_tenant_is_not_found(admin):
    assert_problem(await admin.get("/v1/tenants/nobody"), status=404, code="tenant-not-found")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"max_running": -1}, "#/max_running"),
        ({"max_running": 2**31}, "#/max_running"),
        ({"max_queued": "many"}, "#/max_queued"),
        ({"defaults": {"timeout_s": 0}}, "#/defaults/timeout_s"),
        ({"defaults": {"on_timeout": "explode"}}, "#/defaults/on_timeout"),
        ({"defaults": {"user": "x"}}, "#/defaults/user"),
        ({"rules": [{}, {"match": {"team": "x"}}]}, "#/rules/1/match/team"),
        ({"rules": [{"template": ""}]}, "#/rules/0/template"),
        ({"rules": [{}] * 101}, "#/rules"),
    ],
    ids=str,
)
async def test_tenants__invalid_fields_are_named_in_the_error(admin, body, pointer):
    problem = assert_problem(
        await admin.put("/v1/tenants/team", json=body), status=422, code="validation-failed"
    )
    assert [error["pointer"] for error in problem["errors"]] == [pointer]


@pytest.mark.parametrize("name", ["UPPER", "-a", "a.b", "a" * 64, "a b"])
async def test_tenants__ambiguous_names_are_rejected(admin, name):
    answer = await admin.put(f"/v1/tenants/{name}", json={})
    assert_problem(answer, status=422, code="validation-failed")


@pytest.mark.parametrize("body", [{"defaults": {"backend": "x"}}, {"rules": [{"backend": "x"}]}])
async def test_tenants__an_unknown_backend_is_rejected(admin, body):
    answer = await admin.put("/v1/tenants/team", json=body)
    assert_problem(answer, status=422, code="invalid-request")


async def test_tenants__a_larger_quota_admits_queued_sandboxes(admin, sessions, backends):
    await admin.put("/v1/tenants/default", json={"max_running": 500})
    async with sessions() as session:
        jobs = await session.scalars(select(Job).where(Job.kind == "admission"))
        assert {job.subject for job in jobs} == {"one", "other"}
