import asyncio
import os
import signal

import pytest
from e2b import AsyncSandbox, AsyncTemplate, SandboxException, SandboxState
from e2b.exceptions import ServiceBusyException

from tests.engine import leftovers
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


async def test_warm_pool__ready_sandboxes_survive_a_crash(reserve, ready_engine, ready_options):
    mine = await AsyncSandbox.create(metadata={"whose": "mine"}, timeout=120, **ready_options)
    ready = await reserve.wait_full()
    await ready_engine.restart()
    assert reserve.ids() == ready
    info = await mine.get_info()
    assert (info.state, info.metadata) == (SandboxState.RUNNING, {"whose": "mine"})

    created = await asyncio.gather(
        *(AsyncSandbox.create(timeout=120, **ready_options) for _ in range(3))
    )
    ids = {sandbox.sandbox_id for sandbox in created}
    assert len(ids) == 3
    assert ready <= ids
    await ready_engine.restart()
    assert not reserve.ids() & ids
    assert (await created[0].commands.run("echo still")).stdout == "still\n"
    await asyncio.gather(*(sandbox.kill() for sandbox in (mine, *created)))


@pytest.mark.slow  # a crash needs an engine of its own
async def test_warm_pool__sandbox_dead_during_downtime_is_removed(reserve, ready_engine):
    ended = reserve.waiting()
    ready_engine.kill()
    for record in ended:
        os.kill(record["init"]["pid"], signal.SIGKILL)
    await asyncio.to_thread(ready_engine.start)
    await reserve.wait_full()
    assert not {one["id"] for one in reserve.records()} & {one["id"] for one in ended}


@pytest.mark.timeout(180)
@pytest.mark.slow  # a crash needs an engine of its own
async def test_warm_pool__interrupted_starts_leave_nothing(reserve, ready_engine, ready_options):
    await reserve.wait_full()
    before = leftovers.of_sandboxes(ready_engine)
    for delay in (0.0, 0.02, 0.05):
        taken = await AsyncSandbox.create(timeout=600, **ready_options)
        await asyncio.sleep(delay)
        await ready_engine.restart()
        await taken.kill()

    async def is_as_before():
        return await asyncio.to_thread(leftovers.of_sandboxes, ready_engine) == before

    await until(is_as_before, timeout=90, pause=0.5)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_warm_pool__failing_template_is_suspended_with_the_reason(
    reserve, ready_engine, ready_options, name
):
    async def build(ready):
        template = AsyncTemplate().from_base_image().set_ready_cmd(ready)
        await AsyncTemplate.build(template, name, **ready_options)

    await build("sleep 1.2")
    async with await AsyncSandbox.create(name, timeout=120, **ready_options):
        await reserve.wait_full(name)
    ready_engine.stop()
    await asyncio.to_thread(ready_engine.start, "--start-timeout-s", "1")

    async with await AsyncSandbox.create(name, timeout=120, **ready_options):

        async def is_given_up():
            level = await reserve.level(name)
            return level["failures"] >= 3 and level["nextTry"] is None and level

        given_up = await until(is_given_up, timeout=90)
    assert given_up["ready"] == 1
    assert "its ready command did not succeed within 1 s: sleep 1.2" in given_up["failure"]
    await (await AsyncSandbox.create(name, timeout=120, **ready_options)).kill()
    with pytest.raises(SandboxException, match="did not succeed within 1 s"):
        await AsyncSandbox.create(name, timeout=120, **ready_options)

    await ready_engine.restart()
    await build("true")
    await (await AsyncSandbox.create(name, timeout=120, **ready_options)).kill()
    await reserve.wait_full(name)
    assert (await reserve.level(name))["failure"] is None


@pytest.mark.slow  # a crash needs an engine of its own
async def test_warm_pool__ready_sandboxes_are_evicted_for_requests(
    reserve, ready_engine, ready_options
):
    ready_engine.stop()
    await asyncio.to_thread(ready_engine.start, "--min-free-memory-mb", str(1 << 30))
    async with await AsyncSandbox.create(timeout=120, **ready_options):
        assert len(reserve.ids()) == 1
    with pytest.raises(ServiceBusyException, match="out of memory for another sandbox"):
        await AsyncSandbox.create(allow_internet_access=False, retries=0, **ready_options)
    assert not reserve.ids()
    assert "The machine is out of memory" in (await reserve.level())["failure"]
    await ready_engine.restart()
    await reserve.wait_full()
