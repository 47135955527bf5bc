"""The provider of the benchmarks answers as the engine does."""

from datetime import timedelta

import pytest
from benchmarks.stub.process import started_stub
from e2b import AsyncSandbox, NotFoundException

from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.errors import SandboxGone
from sandbox_server.providers.protocol.provider import ReportedState

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture
async def stub():
    async with started_stub() as stub:
        yield stub


@pytest.fixture
async def backend(stub):
    backend = E2BBackend(stub.endpoint(), installation_id="tests", page=2)
    yield backend
    await backend.close()


async def test_stub__our_backend_runs_a_whole_lifecycle(backend, wanted):
    access = await backend.create(wanted)
    assert await backend.create(wanted) == access
    assert await backend.is_answering(access)

    await backend.pause(access.provider_id)
    await backend.pause(access.provider_id)
    assert (await backend.info(access.provider_id)).state is ReportedState.PAUSED
    assert not await backend.is_answering(access)

    assert await backend.connect(access.provider_id, timeout=HOUR) == access
    before = await backend.info(access.provider_id)
    assert before.state is ReportedState.RUNNING
    await backend.set_timeout(access.provider_id, MINUTE)
    assert (await backend.info(access.provider_id)).ends_at < before.ends_at

    await backend.kill(access.provider_id)
    await backend.kill(access.provider_id)
    with pytest.raises(SandboxGone):
        await backend.info(access.provider_id)


async def test_stub__our_backend_finds_everything_that_it_created(backend, new_sandbox):
    created = {}
    for _ in range(5):
        wanted = new_sandbox()
        created[(await backend.create(wanted)).provider_id] = wanted.sandbox_id

    listed = await backend.list_all()

    assert {one.id: one.sandbox_id for one in listed} == created
    for provider_id, sandbox_id in created.items():
        assert [one.id for one in await backend.find(sandbox_id)] == [provider_id]


async def test_stub__the_sdk_runs_a_whole_lifecycle(stub):
    options = {"api_key": stub.api_key, "api_url": stub.url, "sandbox_url": stub.url}
    sandbox = await AsyncSandbox.create(timeout=60, metadata={"of": "mine & theirs"}, **options)
    assert await sandbox.is_running()
    await sandbox.set_timeout(120)
    await sandbox.pause()
    await AsyncSandbox.connect(sandbox.sandbox_id, **options)
    assert (await sandbox.get_info()).metadata == {"of": "mine & theirs"}
    await sandbox.kill()
    with pytest.raises(NotFoundException):
        await sandbox.get_info()


async def test_stub__reports_its_requests(stub, backend, wanted):
    access = await backend.create(wanted)
    created_at = (await backend.info(access.provider_id)).started_at
    await backend.kill(access.provider_id)
    arrivals = await stub.arrivals("kill")
    assert list(arrivals) == [access.provider_id]
    assert arrivals[access.provider_id] >= created_at.timestamp()
