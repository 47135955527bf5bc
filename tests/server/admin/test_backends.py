import pytest
from pydantic import SecretStr
from sqlalchemy import select

from sandbox_server.admin.backends import register_backends
from sandbox_server.db.models import Job
from sandbox_server.domain.ids import new_id
from sandbox_server.providers.registry import open_backends
from sandbox_server.providers.settings import BackendSettings
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of

PATH = "/v1/backends"


def named(name, **fields):
    return BackendSettings(name=name, api_key=SecretStr("a-secret-key"), **fields)


@pytest.fixture
async def backends(sessions):
    """Configure two providers, and a row of a removed third one; none is called."""
    several = [
        named("usual", overflow_to="other", max_continuous_run_s=3600, capacity=3),
        named("other"),
    ]
    for settings in ([named("former")], several):
        backends = open_backends(settings, installation_id=new_id())
        await register_backends(sessions, backends)
        if settings is not several:
            await backends.close()
    yield backends
    await backends.close()


@pytest.fixture
async def reader(app, make_key):
    """Call the API with a read-only key."""
    async with caller_of(app, await make_key(scopes=["read"])) as reader:
        yield reader


async def test_backends__the_list_has_all_with_their_limits_and_without_secrets(reader):
    answer = await reader.get(PATH)
    former, other, usual = answer.json()["items"]
    assert [one["name"] for one in (former, other, usual)] == ["former", "other", "usual"]
    assert usual["is_default"]
    assert not other["is_default"]
    assert (usual["capacity"], usual["overflow_to"]) == (3, "other")
    assert usual["max_continuous_run_s"] == 3600
    assert usual["state"] == "unknown"
    assert (former["configured"], former["state"]) == (False, "down")
    assert "removed from the settings" in former["state_reason"]
    assert "a-secret-key" not in answer.text


async def test_backends__get_returns_one_by_name(reader):
    assert (await reader.get(f"{PATH}/other")).json()["name"] == "other"


@pytest.mark.parametrize("name", ["nowhere", "a b"])
async def test_backends__an_unknown_name_is_not_found(reader, name):
    assert_problem(await reader.get(f"{PATH}/{name}"), status=404, code="backend-not-found")


async def test_backends__a_drained_backend_stays_drained_until_changed(admin, sessions):
    for drained in (True, False):
        answer = await admin.patch(f"{PATH}/usual", json={"drained": drained})
        assert answer.status_code == 200
        assert answer.json()["drained"] is drained
        assert (await admin.get(f"{PATH}/usual")).json()["drained"] is drained


async def test_backends__draining_lets_queued_sandboxes_move_to_other_backends(admin, sessions):
    async with sessions.begin() as session:
        for job in await session.scalars(select(Job)):
            await session.delete(job)
    await admin.patch(f"{PATH}/usual", json={"drained": True})
    async with sessions() as session:
        jobs = (await session.scalars(select(Job).order_by(Job.subject))).all()
    assert [(job.kind, job.subject) for job in jobs] == [
        ("admission", "other"),
        ("admission", "usual"),
    ]


async def test_backends__only_admins_can_drain(reader, admin):
    refused = await reader.patch(f"{PATH}/usual", json={"drained": True})
    assert_problem(refused, status=403, code="scope-missing")
    assert not (await admin.get(f"{PATH}/usual")).json()["drained"]


@pytest.mark.parametrize("body", [{}, {"drained": "yes"}, {"drained": True, "capacity": 9}])
async def test_backends__invalid_updates_are_rejected(admin, body):
    assert (await admin.patch(f"{PATH}/usual", json=body)).status_code == 422


async def test_backends__an_unknown_backend_cannot_be_drained(admin):
    missing = await admin.patch(f"{PATH}/nowhere", json={"drained": True})
    assert_problem(missing, status=404, code="backend-not-found")
