"""When the default template is rebuilt, tested on rows."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from sandbox_server.db.models import Backend, Job, Template, TemplateBuild
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.kinds import AGENT_TEMPLATE, TEMPLATE_BUILD
from sandbox_server.templates.agent_template import AgentTemplate
from sandbox_server.templates.bundled import read_bundled_templates
from tests.server.templates.bundled_templates import write_context

JOB = LeasedJob(id=1, kind=AGENT_TEMPLATE, subject="local", attempts=1, leased_by="a")


@pytest.fixture
def bundled(tmp_path):
    return read_bundled_templates(write_context(tmp_path)).templates["agent"]


@pytest.fixture
async def agent(sessions, bundled):
    """Manage the template at a backend that is never called."""
    async with sessions.begin() as session:
        session.add(Backend(name="local", capacity=1))

    def make(template=bundled, **options):
        return AgentTemplate(sessions, template, "local", **options)

    return make


@pytest.fixture
def build(sessions):
    async def build(**changes):
        async with sessions.begin() as session:
            if changes:
                await session.execute(update(TemplateBuild).values(**changes))
            return (await session.scalars(select(TemplateBuild))).one()

    return build


async def test_agent_template__concurrent_starts_request_one_build(agent, build, sessions):
    async with sessions.begin() as session:
        session.add(Template(id=new_id(), name="agent"))  # as discovered at a provider
    await asyncio.gather(*(agent().ensure() for _ in range(5)))
    assert (await build()).number == 1
    async with sessions() as session:
        template = (await session.scalars(select(Template))).one()
        assert (template.name, template.tenant_id, template.has_services) == ("agent", None, True)
        assert template.capabilities == ["mcp"]
        jobs = await session.scalars(select(Job.kind).order_by(Job.kind))
        assert jobs.all() == [AGENT_TEMPLATE, TEMPLATE_BUILD]


@pytest.mark.parametrize(
    ("state", "digest", "number"),
    [("ready", None, 1), ("building", None, 1), ("failed", None, 2), ("ready", "another", 2)],
)
async def test_agent_template__a_start_rebuilds_failed_builds_and_other_versions(
    agent, build, bundled, state, digest, number
):
    await agent().ensure()
    await build(state=state, digest=digest or bundled.digest)
    await agent().ensure()
    wanted = await build()
    assert (wanted.number, wanted.digest) == (number, bundled.digest)


async def test_agent_template__a_failed_build_is_retried_after_some_time(agent, build):
    await agent().ensure()
    await build(state="failed")
    await agent().work(JOB)
    assert (await build()).number == 1
    await agent(retry_after=timedelta()).work(JOB)
    assert ((await build()).number, (await build()).state) == (2, "building")


async def test_agent_template__an_inherited_build_that_ended_with_its_engine_is_retried_once(
    agent, build
):
    await agent().ensure()
    restarted = agent()
    await restarted.ensure()
    await restarted.work(JOB)
    assert (await build()).number == 1
    for number in (2, 2):
        await build(state="failed")
        await restarted.work(JOB)
        assert (await build()).number == number


async def test_agent_template__another_version_is_left_alone_between_starts(agent, build, bundled):
    await agent(replace(bundled, digest="newer")).ensure()
    await build(state="failed")
    await agent(retry_after=timedelta()).work(JOB)
    assert ((await build()).number, (await build()).digest) == (1, "newer")
