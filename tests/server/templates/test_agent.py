"""The default template, which the server builds by itself."""

import asyncio

import pytest

from sandbox_server.db.models import Sandbox
from tests.server.support.fault_proxy import Held
from tests.server.support.full_server import inside
from tests.server.templates.bundled_templates import AT_START, shipping, through, write_context

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(300)]


@pytest.fixture
async def swept(backend_at):
    """Remove everything of the test's servers from the engine."""
    provider = backend_at().templates
    yield
    for name in ("agent", "relay-workspace"):
        await provider.delete(name)


@pytest.fixture
def context(tmp_path):
    return write_context(tmp_path / "context", "RUN echo $WITH_WORDS > /opt/words")


@pytest.fixture
def start(database_url, tmp_path, engine, swept):
    """Start servers on one database, each with its own build context."""

    def start(context, engine=engine, **settings):
        return shipping(database_url, engine, context=context, state_dir=tmp_path, **settings)

    return start


@pytest.fixture
def held(proxy):
    """Hold builds back until released."""
    held = Held(carried_out=False)
    proxy.on(AT_START, held)
    return held


def builds_begun(proxy):
    return sum(line.startswith(AT_START) and "builds" in line for line in proxy.seen)


async def test_agent_template__it_is_built_at_the_first_start_and_becomes_the_default(
    start, context, engine, proxy, held
):
    async with start(context, through(proxy, engine)) as server:
        await held.wait_reached()
        meanwhile = await server.create()
        assert (meanwhile["state"], meanwhile["template"]) == ("running", "base")
        assert "is being built" in meanwhile["template_note"]
        awaiting = await server.create(template="agent", wait=0)
        assert awaiting["state"] == "queued"
        by_capability = await server.create(capabilities=["mcp"], wait=0)
        assert (by_capability["state"], by_capability["template"]) == ("queued", "agent")
        assert "'agent' is being built at local" in awaiting["queue"]["reason"]
        held.let_go()
        served = await server.becomes(awaiting["id"], "running")
        assert served["template"] == "agent"
        assert served["resources"]["memory_mb"] == 256
        assert (await server.becomes(by_capability["id"], "running"))["capabilities"] == ["mcp"]
        by_default = await server.create()
        assert (by_default["template"], by_default["template_note"]) == ("agent", None)
        assert (await server.create(template="base"))["template_note"] is None
        sandbox = await inside(server.outside, by_default["id"])
        said = await sandbox.commands.run(
            "cat /opt/words /opt/given/within/deeper; /opt/given/start.sh; ls /opt/tools"
        )
        assert said.stdout == "some words\ndeepfirsttool.py\n"
        async with server.outside.components.sessions() as session:
            assert (await session.get_one(Sandbox, by_default["id"])).has_services
            assert not (await session.get_one(Sandbox, meanwhile["id"])).has_services


async def test_agent_template__waiting_sandboxes_show_the_current_step(start, tmp_path):
    context = write_context(tmp_path / "context", "RUN sleep infinity")
    async with start(context) as server:
        awaiting = await server.create(template="agent", wait=0)

        async def reason():
            return (await server.told(awaiting["id"]))["queue"]["reason"]

        async with asyncio.timeout(60):
            while "RUN sleep infinity" not in await reason():  # noqa: ASYNC110 - no notification
                await asyncio.sleep(0.1)
        assert "'agent' is being built at local: step 6 of " in await reason()


async def test_agent_template__a_failed_build_is_reported_to_waiting_sandboxes(start, tmp_path):
    context = write_context(tmp_path / "context", "RUN echo no cheese >&2; exit 3")
    async with start(context) as server:
        awaiting = await server.create(template="agent", wait=0)
        failed = await server.becomes(awaiting["id"], "failed")
        assert "no cheese" in failed["state_reason"]
        assert "no cheese" in (await server.build())["state_reason"]
        by_default = await server.create()
        assert by_default["template"] == "base"
        assert "is not ready" in by_default["template_note"]
    write_context(context, "RUN true")
    async with start(context) as server:
        await server.built("ready")
        assert (await server.create())["template"] == "agent"


@pytest.mark.slow  # several starts
async def test_agent_template__it_is_rebuilt_only_when_its_version_changes(
    start, context, engine, proxy
):
    async with start(context, through(proxy, engine)) as server:
        await server.built("ready")
    async with start(context, through(proxy, engine)) as server:
        assert (await server.build())["state"] == "ready"
    assert builds_begun(proxy) == 1
    write_context(context, given="second")
    held = Held(carried_out=False)
    proxy.on(AT_START, held)
    async with start(context, through(proxy, engine)) as server:
        await held.wait_reached()
        before = await server.create()
        held.let_go()
        await server.built("ready")
        after = await server.create()
        said = [await given(server, made) for made in (before, after)]
    assert said == ["first", "second"]
    assert builds_begun(proxy) == 2


async def given(server, made):
    assert made["template"] == "agent"
    assert made["template_note"] is None
    sandbox = await inside(server.outside, made["id"])
    return (await sandbox.commands.run("cat /opt/given/given")).stdout


async def test_agent_template__servers_that_start_concurrently_request_one_build(
    start, context, engine, proxy
):
    reached = through(proxy, engine)
    async with start(context, reached) as one, start(context, reached) as other:
        await one.built("ready")
        await other.built("ready")
    assert builds_begun(proxy) == 1


async def test_agent_template__nothing_is_built_if_it_is_disabled(start, context, engine, proxy):
    async with start(context, through(proxy, engine), agent_template=False) as server:
        assert (await server.create())["template_note"] is None
        assert (await server.api.get("/v1/templates/agent")).status_code == 404
    assert builds_begun(proxy) == 0


async def test_agent_template__a_build_context_without_a_copied_file_fails(start, tmp_path):
    context = write_context(tmp_path / "context", "COPY docker/nothing /opt")
    async with start(context) as server:
        failed = await server.built("failed")
        assert "'docker/nothing'" in failed["state_reason"]
