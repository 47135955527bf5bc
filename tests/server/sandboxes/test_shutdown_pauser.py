from datetime import timedelta

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from sandbox_server.db.models import Job, Sandbox, Tenant
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.ids import ApiKeyId, TenantId, new_id
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs.kinds import ADMISSION
from sandbox_server.providers.settings import BackendSettings
from sandbox_server.settings import Settings
from sandbox_server.wiring import open_server
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

MINUTE = timedelta(minutes=1)
WANTED = SandboxRequest(template="base")


@pytest.fixture
def settings(database_url, engine, tmp_path):
    """Have one place at the engine."""
    backend = BackendSettings(
        name="local",
        api_key=SecretStr(engine.api_key),
        api_url=engine.url,
        sandbox_url=engine.url,
        domain=f"localhost:{engine.port}",
        capacity=1,
    )
    return Settings(database_url=SecretStr(database_url), state_dir=tmp_path, backends=(backend,))


@pytest.fixture
async def caller(sessions):
    tenant_id = TenantId(new_id())
    async with sessions.begin() as session:
        session.add(Tenant(id=tenant_id, name="default", max_running=9, max_queued=9))
    return Caller(tenant_id=tenant_id, key_id=ApiKeyId(new_id()), scopes=frozenset({Scope.ADMIN}))


async def test_shutdown_pauser__pauses_running_sandboxes_and_leaves_queued_ones(
    settings, sessions, caller
):
    async def read(sandbox_id):
        async with sessions() as session:
            return await session.get_one(Sandbox, sandbox_id)

    async def is_admission_settled():
        async with sessions() as session:
            job = await session.scalar(select(Job).where(Job.kind == ADMISSION))
        return job.run_at is None and job.leased_by is None

    async with open_server(settings) as server:
        create = server.components.controller.create
        running = await create(caller, WANTED, wait=MINUTE)
        waiting = await create(caller, WANTED, wait=timedelta())
        assert (running.state, waiting.state) == (State.RUNNING, State.QUEUED)
        assert await server.shutdown_pauser.pause_all(within=MINUTE)
        await until(is_admission_settled)  # it has been told of the free place
        paused, waiting = await read(running.id), await read(waiting.id)
        assert (paused.state, paused.target) == (State.PAUSED, Target.PAUSED)
        assert paused.expires_at is None  # its time stands still
        assert (waiting.state, waiting.target) == (State.QUEUED, Target.RUNNING)
    async with open_server(settings) as server:

        async def has_its_turn():
            return (await read(waiting.id)).state is State.RUNNING

        await until(has_its_turn, timeout=60)
        assert (await read(running.id)).state is State.PAUSED
        for one in (running, waiting):
            await server.components.controller.delete(caller, one.id, wait=MINUTE)
