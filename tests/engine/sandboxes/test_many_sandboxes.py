import asyncio

import pytest
from e2b import AsyncSandbox, SandboxNotRunningException

from tests.engine import leftovers
from tests.engine.engine_process import running_engine

pytestmark = pytest.mark.needs_engine

CROWD = 300
AT_ONCE = 20


@pytest.fixture(scope="module")
def roomy_engine():
    """Run an engine for many small sandboxes."""
    with running_engine("--disk-mb", "64", "--memory-mb", "64") as engine:
        yield engine


@pytest.mark.slow  # a hundred sandboxes at once load the machine
async def test_many_sandboxes__hundred_concurrent_creates_succeed(roomy_engine):
    options = roomy_engine.options
    created = await asyncio.gather(
        *(AsyncSandbox.create(timeout=120, **options) for _ in range(100))
    )
    assert len({sandbox.sandbox_id for sandbox in created}) == 100
    said = await asyncio.gather(
        *(one.commands.run("echo $E2B_SANDBOX_ID") for one in created[::10])
    )
    assert [one.stdout.strip() for one in said] == [one.sandbox_id for one in created[::10]]
    assert all(await asyncio.gather(*(one.kill() for one in created)))


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_many_sandboxes__three_hundred_sandboxes_leave_nothing(roomy_engine):
    options = roomy_engine.options
    before = await leftovers.settled(roomy_engine)
    room = asyncio.Semaphore(AT_ONCE)

    async def create(number):
        async with room:
            return await AsyncSandbox.create(timeout=300, envs={"NUMBER": str(number)}, **options)

    async def write_and_read(sandbox, number):
        async with room:
            await sandbox.files.write("number", f"file {number}, ")
            return (await sandbox.commands.run("cat number; echo variable $NUMBER")).stdout

    async def kill(sandbox):
        async with room:
            return await sandbox.kill()

    crowd = await asyncio.gather(*(create(number) for number in range(CROWD)))
    assert leftovers.count(roomy_engine)["containers"] == CROWD
    said = await asyncio.gather(*(write_and_read(one, number) for number, one in enumerate(crowd)))
    assert said == [f"file {number}, variable {number}\n" for number in range(CROWD)]
    assert all(await asyncio.gather(*(kill(one) for one in crowd)))

    with pytest.raises(SandboxNotRunningException):
        await crowd[-1].commands.run("true")
    await leftovers.back_to(roomy_engine, before)
