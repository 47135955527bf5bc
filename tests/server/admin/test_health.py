import pytest
from pydantic import SecretStr
from sqlalchemy import text

from sandbox_server.admin.overview import Overview
from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.providers.registry import Backends, open_backends
from sandbox_server.providers.settings import BackendSettings
from tests.server.support.rows import add_backend


@pytest.fixture
async def backends():
    """Configure a backend, reachable or not."""
    local = BackendSettings(name="local", api_url="http://127.0.0.1:9", api_key=SecretStr("e2b_0"))
    backends = open_backends([local], installation_id="test")
    yield backends
    await backends.close()


async def test_healthz__a_running_process_is_healthy_without_a_key(stranger):
    assert (await stranger.get("/healthz")).json() == {"status": "alive"}


async def test_version__needs_no_key(stranger):
    assert (await stranger.get("/version")).json()["api"] == "v1"


async def test_readyz__a_backend_that_is_down_does_not_affect_readiness(stranger, sessions):
    await add_backend(sessions, state="down", drained=True)
    answer = await stranger.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["backends"] == [{"name": "local", "state": "down", "drained": True}]


async def test_readyz__an_older_schema_is_not_ready(stranger, sessions):
    async with sessions.begin() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    answer = await stranger.get("/readyz")
    assert answer.status_code == 503
    assert "older" in answer.json()["reasons"][0]


async def test_readyz__a_newer_servers_schema_is_ready(stranger, sessions):
    await add_backend(sessions)
    async with sessions.begin() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert (await stranger.get("/readyz")).status_code == 200


async def test_readyz__without_backends_the_server_is_not_ready(sessions):
    readiness = await Overview(sessions, Backends({})).check_readiness()
    assert readiness.reasons == ["No backend is configured."]


async def test_readyz__without_a_database_the_server_is_not_ready(backends):
    nowhere = create_engine("postgresql://nobody@127.0.0.1:9/nothing")
    readiness = await Overview(create_sessions(nowhere), backends).check_readiness()
    assert readiness.reasons == ["The database is unreachable."]
