"""Builds with server crashes, unreachable providers and lost responses at every step."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from sandbox_server.db.models import Template
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.templates import Definition, Step, StepKind
from sandbox_server.jobs.kinds import TEMPLATE_BUILD
from sandbox_server.templates.build_repository import TemplateBuildRepository
from sandbox_server.templates.builder import LONGEST_BUILD, TemplateBuilder
from sandbox_server.templates.definitions import encrypt_definition
from tests.engine.polling import until
from tests.server.support.fault_proxy import Held, answer_with, lose_answer
from tests.server.support.managed_sandboxes import living_at, new_living

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(300)]

REQUEST = "POST /v3/templates"
START = "POST /v2/templates"


class OneBuild:
    """A template requested at one backend, and its server."""

    def __init__(self, living, template_id):
        self._living = living
        self.template_id = template_id

    async def settle(self, *, longest=LONGEST_BUILD):
        living = self._living
        job = LeasedJob(
            id=1,
            kind=TEMPLATE_BUILD,
            subject=f"{self.template_id}/local",
            attempts=1,
            leased_by="a",
        )
        return await TemplateBuilder(
            living.sessions,
            living.backends,
            living.vault,
            living.core.waiters.release,
            longest=longest,
        ).work(job)

    async def row(self):
        async with self._living.sessions() as session:
            found = await TemplateBuildRepository(session).find(self.template_id, "local")
        assert found is not None
        return found[1]

    async def want(self):
        async with self._living.sessions.begin() as session:
            await TemplateBuildRepository(session).request(self.template_id, "local", force=False)

    async def settled(self):
        """Run until the build ends, as the queue does."""

        async def is_over():
            await self.settle()
            return (await self.row()).state != "building"

        await until(is_over, timeout=120, pause=0.1)
        return await self.row()


@pytest.fixture
async def build(sessions, backend_at, proxy, sweeping):
    living = await new_living(sessions, backend_at())
    faulty = living_at(sessions, backend_at(proxy.url), tenant_id=living.tenant_id)
    template_id = new_id()
    definition = Definition(from_template="base", steps=[Step(StepKind.RUN, "true")])
    async with sessions.begin() as session:
        sealed = encrypt_definition(living.vault, template_id, definition)
        session.add(
            Template(
                id=template_id, tenant_id=living.tenant_id, name="own", definition_sealed=sealed
            )
        )
    build = OneBuild(faulty, template_id)
    await build.want()
    return build


@pytest.mark.parametrize("lost", [REQUEST, START])
async def test_template_builds__a_request_with_a_lost_response_is_repeated(build, proxy, lost):
    proxy.on(lost, lose_answer)
    assert await build.settle() is not None
    assert "Retrying" in (await build.row()).state_reason
    assert (await build.settled()).state == "ready"
    assert (await build.row()).state_reason is None


async def test_template_builds__a_started_build_is_not_started_twice(build, proxy):
    proxy.on(START, lose_answer)
    await build.settle()
    assert (await build.row()).started_at is None
    assert (await build.settled()).state == "ready"
    assert sum(line.startswith(START) and "builds" in line for line in proxy.seen) == 1


@pytest.fixture
async def named(build, proxy):
    """Crash a server between requesting and starting a build; returns the provider's build id."""
    held = Held(carried_out=False)
    proxy.on(START, held)
    dying = asyncio.create_task(build.settle())
    await held.wait_reached()
    dying.cancel()
    with suppress(asyncio.CancelledError):
        await dying
    return (await build.row()).backend_build_id


async def test_template_builds__another_server_continues_after_a_crash_before_the_start(
    build, named
):
    assert named is not None
    ready = await build.settled()
    assert (ready.state, ready.backend_build_id) == ("ready", named)


async def test_template_builds__an_unreachable_provider_is_retried(build, proxy):
    await proxy.refuse()
    assert await build.settle() is not None
    waiting = await build.row()
    assert (waiting.state, waiting.backend_build_id) == ("building", None)
    assert "Retrying" in waiting.state_reason
    await proxy.listen()
    assert (await build.settled()).state == "ready"


async def test_template_builds__a_busy_providers_retry_after_is_respected(build, proxy):
    proxy.on(REQUEST, answer_with(429, "{}", Retry_After="77"))
    before = (await build.row()).requested_at
    assert await build.settle() >= before + timedelta(seconds=77)
    assert (await build.row()).state == "building"


async def test_template_builds__a_late_response_about_an_earlier_build_is_ignored(build, proxy):
    held = Held(carried_out=True)
    proxy.on("GET /v2/templates", held)
    late = asyncio.create_task(build.settled())
    await held.wait_reached()
    await build.want()
    held.let_go()
    await late
    row = await build.row()
    assert (row.number, row.state) == (2, "ready")
    assert row.backend_build_id is not None


async def test_template_builds__a_build_that_takes_too_long_fails(build, proxy):
    await proxy.refuse()
    assert await build.settle(longest=timedelta(0)) is None
    row = await build.row()
    assert row.state == "failed"
    assert "cannot be reached" in row.state_reason


@pytest.mark.usefixtures("named")
async def test_template_builds__a_build_that_the_provider_lost_fails(build, backend_at):
    await backend_at().templates.delete(f"sandbox-server-{build.template_id}")
    row = await build.settled()
    assert row.state == "failed"
    assert "404" in row.state_reason
