import asyncio
import os
import select
import signal
from datetime import timedelta

import httpx
import pytest
from e2b import AsyncSandbox, AsyncTemplate, SandboxNotFoundException

from tests.engine.polling import until
from tests.engine.sandboxes.warm_pool.conftest import PORT, WANTED

pytestmark = pytest.mark.needs_engine


async def test_warm_pool__ready_sandbox_takes_the_request_options(reserve, ready_options):
    ready = reserve.ids()
    sandbox = await AsyncSandbox.create(
        metadata={"for": "you"}, envs={"NAME": "you"}, timeout=77, **ready_options
    )
    async with sandbox:
        assert sandbox.sandbox_id in ready
        said = await sandbox.commands.run("echo $NAME $E2B_SANDBOX_ID")
        assert said.stdout == f"you {sandbox.sandbox_id}\n"
        info = await sandbox.get_info()
        assert info.metadata == {"for": "you"}
        assert info.end_at - info.started_at == timedelta(seconds=77)


async def test_warm_pool__ready_sandboxes_are_invisible(reserve, ready_options, ready_engine):
    waiting = min(reserve.ids())
    listed = await AsyncSandbox.list(**ready_options).next_items()
    assert waiting not in {one.sandbox_id for one in listed}
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.connect(waiting, **ready_options)
    assert not await AsyncSandbox.kill(waiting, **ready_options)
    headers = {"E2b-Sandbox-Id": waiting, "E2b-Sandbox-Port": "49983"}
    async with httpx.AsyncClient(base_url=ready_engine.url, timeout=60) as client:
        assert (await client.get("/health", headers=headers)).status_code == 502
    assert waiting in reserve.ids()


async def test_warm_pool__incompatible_request_starts_a_new_sandbox(reserve, ready_options):
    ready = reserve.ids()
    closed = await AsyncSandbox.create(allow_internet_access=False, timeout=120, **ready_options)
    async with closed:
        assert closed.sandbox_id not in ready
        tried = "curl --silent --max-time 2 https://pypi.org || echo closed"
        assert (await closed.commands.run(tried)).stdout == "closed\n"


async def test_warm_pool__concurrent_creates_get_different_sandboxes(reserve, ready_options):
    ready = reserve.ids()
    creating = (AsyncSandbox.create(timeout=120, **ready_options) for _ in range(6))
    created = await asyncio.gather(*creating)
    ids = {sandbox.sandbox_id for sandbox in created}
    assert len(ids) == 6
    assert ready <= ids
    await asyncio.gather(*(sandbox.kill() for sandbox in created))


async def test_warm_pool__ended_sandbox_is_not_assigned(reserve, ready_options):
    ended = reserve.waiting()
    for record in ended:
        await end(record["init"]["pid"])
    async with await AsyncSandbox.create(timeout=120, **ready_options) as sandbox:
        assert (await sandbox.commands.run("echo up")).stdout == "up\n"
    assert not await reserve.wait_full() & {record["id"] for record in ended}


async def end(pid):
    """End a process and wait until it has; whoever is its parent may not have looked yet."""
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(select.select, [descriptor], [], [], 30)
    os.close(descriptor)


async def test_warm_pool__repeated_request_takes_one_sandbox(reserve, ready_engine):
    key = {"X-API-Key": ready_engine.api_key, "Idempotency-Key": "once"}
    ready = reserve.ids()
    async with httpx.AsyncClient(base_url=ready_engine.url, headers=key, timeout=60) as client:
        body = {"templateID": "base", "timeout": 60}
        answers = [await client.post("/v2/sandboxes", json=body) for _ in range(2)]
        first, second = (answer.json()["sandboxID"] for answer in answers)
        assert first == second
        assert first in ready
        await client.delete(f"/sandboxes/{first}")


async def test_warm_pool__template_in_demand_is_kept_ready(
    reserve, ready_options, name, build_server
):
    await build_server(name, ready_options)
    async with await AsyncSandbox.create(name, timeout=120, **ready_options):
        ready = await reserve.wait_full(name)
    async with await AsyncSandbox.create(name, timeout=120, **ready_options) as sandbox:
        assert sandbox.sandbox_id in ready
        told = f"curl --silent localhost:{PORT}/told-{sandbox.sandbox_id}"
        assert (await sandbox.commands.run(told)).stdout == "hello \n"

    ready = await reserve.wait_full(name)
    named = await AsyncSandbox.create(name, envs={"NAME": "you"}, timeout=120, **ready_options)
    async with named:
        assert named.sandbox_id in ready
        told = f"echo $NAME; curl --silent localhost:{PORT}/told-{named.sandbox_id}"
        assert (await named.commands.run(told)).stdout == "you\nhello \n"


@pytest.mark.slow  # builds a template on an engine of its own
async def test_warm_pool__configured_template_is_ready_once_built(
    reserve, ready_options, build_server
):
    await build_server(WANTED, ready_options)
    ready = await reserve.wait_full(WANTED)
    async with await AsyncSandbox.create(WANTED, timeout=120, **ready_options) as sandbox:
        assert sandbox.sandbox_id in ready


async def test_warm_pool__sandboxes_of_an_earlier_build_are_removed(reserve, ready_options, name):
    async def build(text):
        template = AsyncTemplate().from_base_image().set_envs({"BUILT": text})
        await AsyncTemplate.build(template, name, **ready_options)

    async def built():
        async with await AsyncSandbox.create(name, timeout=120, **ready_options) as sandbox:
            return (await sandbox.commands.run("echo $BUILT")).stdout.strip()

    await build("first")
    assert await built() == "first"
    old = await reserve.wait_full(name)
    await build("second")
    assert await built() == "second"

    async def only_new():
        kept = [one for one in reserve.records() if one["template_envs"].get("BUILT") == "first"]
        return not kept

    await until(only_new, timeout=60)
    assert len(await reserve.wait_full(name) - old) >= 2


@pytest.mark.slow  # a warm pool of its own
async def test_warm_pool__ready_sandbox_takes_traffic_rules(reserve, ready_options):
    ready = reserve.ids()
    private = await AsyncSandbox.create(
        network={"allow_public_traffic": False}, timeout=120, **ready_options
    )
    async with private:
        assert private.sandbox_id in ready
        assert private.traffic_access_token
