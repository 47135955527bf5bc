import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest
from e2b import AsyncSandbox, AsyncTemplate, NotFoundException

from tests.engine import leftovers
from tests.engine.engine_process import running_engine
from tests.engine.polling import until
from tests.engine.templates.building.build_client import Builds

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.timeout(300),
]  # a build is many starts of containers

_ENDLESS = "echo x > ~/x; dd if=/dev/zero of=~/big bs=1M count=20 2>/dev/null; sleep infinity"


@pytest.fixture(scope="module")
def own():
    """Run an engine that builds one template at a time, and has nobody else's sandboxes."""
    with running_engine("--max-builds", "1", "--disk-mb", "256") as engine:
        yield Builds(engine)


@pytest.fixture
async def nothing_more(own):
    """Require that a test leaves nothing behind."""
    before = await leftovers.settled(own.engine)
    yield
    await leftovers.back_to(own.engine, before)


async def _has_said(own, building, text):
    status = await AsyncTemplate.get_build_status(building, **own.engine.options)
    return any(text in entry.message for entry in status.log_entries)


async def _status(own, building):
    status = await AsyncTemplate.get_build_status(building, **own.engine.options)
    return status.status


@asynccontextmanager
async def _endless(own, template):
    """Have a build under way in the middle of a step."""
    options = own.engine.options
    building = await AsyncTemplate.build_in_background(
        template.run_cmd("echo 1 > ~/1").run_cmd(_ENDLESS), "endless", **options
    )
    await until(lambda: _has_said(own, building, "] RUN echo x"), timeout=150)
    yield building


async def _delete(own, template_id):
    headers = {"X-API-Key": own.engine.api_key}
    async with httpx.AsyncClient(base_url=own.engine.url, headers=headers, timeout=60) as client:
        answer = await client.delete(f"/templates/{template_id}")
    assert answer.status_code == 204


async def test_build_end__build_sandbox_is_hidden(own, begin):
    async with _endless(own, begin()) as building:
        (sandbox_id,) = [path.name for path in (own.engine.state_dir / "sandboxes").iterdir()]
        assert await AsyncSandbox.list(**own.engine.options).next_items() == []
        with pytest.raises(NotFoundException):
            await AsyncSandbox.connect(sandbox_id, **own.engine.options)
        assert not await AsyncSandbox.kill(sandbox_id, **own.engine.options)
        headers = {"E2b-Sandbox-Id": sandbox_id, "E2b-Sandbox-Port": "49983"}
        async with httpx.AsyncClient(
            base_url=own.engine.url, headers=headers, timeout=60
        ) as client:
            assert (await client.get("/health")).status_code == 502
        await _delete(own, building.template_id)


async def test_build_end__failed_build_leaves_nothing(own, begin, nothing_more):
    template = begin().run_cmd("(sleep infinity &) >/dev/null 2>&1; exit 1")
    await asyncio.to_thread(own.fail, template)


async def test_build_end__cancelled_build_leaves_nothing(own, begin, nothing_more):
    async with _endless(own, begin()) as building:
        await _delete(own, building.template_id)


@pytest.mark.parametrize("ending", ["stop", pytest.param("kill", marks=pytest.mark.slow)])
async def test_build_end__engine_stop_leaves_nothing(own, begin, nothing_more, ending):
    async with _endless(own, begin()) as building:
        await asyncio.to_thread(getattr(own.engine, ending))
        await asyncio.to_thread(own.engine.start)
        assert await _status(own, building) == "error"
    await _delete(own, building.template_id)


async def test_build_end__excess_builds_wait_but_cached_ones_do_not(own, begin):
    await asyncio.to_thread(own.build, begin().run_cmd("echo cached"))
    async with _endless(own, begin()) as endless:
        waiting = await AsyncTemplate.build_in_background(
            begin().run_cmd("echo waits"), "waiting", **own.engine.options
        )
        await until(lambda: _has_said(own, waiting, "RUN echo waits"), timeout=150)
        await asyncio.to_thread(own.build, begin().run_cmd("echo cached"))
        assert not await _has_said(own, waiting, "[stdout]: waits")
        await _delete(own, endless.template_id)
    await until(lambda: _has_said(own, waiting, "[stdout]: waits"), timeout=150)
    await until(lambda: _is_ready(own, waiting), timeout=150)


async def _is_ready(own, building):
    return await _status(own, building) == "ready"


@pytest.mark.slow  # fills a disk
async def test_build_end__full_disk_fails_one_build_only(own, begin):
    script = "dd if=/dev/zero of=~/full bs=1M count=1000"
    failure = await asyncio.to_thread(own.fail, begin().run_cmd(script))
    assert "No space left on device" in str(failure)
    await asyncio.to_thread(own.build, begin().run_cmd("echo x > ~/x"))
