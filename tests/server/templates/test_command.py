"""`sandbox-server template build`, with and without a running server."""

import asyncio
import os
import pty
import signal
from contextlib import suppress

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Template
from tests.engine.polling import until
from tests.server.support.server_process import server_process, variables_of
from tests.server.templates.bundled_templates import write_context

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(300)]


@pytest.fixture
async def swept(backend_at):
    provider = backend_at().templates
    yield
    for name in ("agent", "relay-workspace"):
        await provider.delete(name)


@pytest.fixture
def server(engine, database_url, swept):
    """Provide a server that is not started, whose provider is the engine."""
    with server_process(variables=variables_of(engine, database_url)) as server:
        server.state_dir.mkdir()
        yield server


@pytest.fixture
def build(server):
    """Run the command in a thread until it ends."""

    async def build(context, *words):
        command = ("template", "build", *words, "--template-dir", str(context))
        return await asyncio.to_thread(server.run, *command)

    return build


@pytest.mark.slow
async def test_templates_command__builds_without_a_server_and_the_next_server_knows_it(
    server, build, sessions, tmp_path
):
    context = write_context(tmp_path)
    built = await build(context)
    assert built.returncode == 0, built.stderr
    assert "Building agent at e2b." in built.stdout
    assert "COPY docker/sandbox/" in built.stdout
    assert "agent is ready at e2b" in built.stdout
    assert "relay-workspace is ready at e2b" in built.stdout
    again = await build(context)
    assert again.stdout.splitlines() == [
        "agent is ready at e2b and up to date.",
        "relay-workspace is ready at e2b and up to date.",
    ]
    async with sessions() as session:
        known = await session.execute(select(Template.name, Template.has_services))
        assert set(known.all()) == {("agent", True), ("relay-workspace", True)}
    await asyncio.to_thread(server.start)
    async with server.client() as client:
        made = await client.post("/v1/sandboxes", json={"template": "relay-workspace"})
        assert made.json()["state"] == "running", made.text
        await client.delete(f"/v1/sandboxes/{made.json()['id']}")


async def test_templates_command__a_failed_build_is_reported_with_its_reason_and_exit_code(
    build, tmp_path
):
    failed = await build(write_context(tmp_path, "RUN echo no cheese >&2; exit 3"))
    assert failed.returncode == 1
    assert "no cheese" in failed.stderr
    assert "Building agent failed" in failed.stdout


async def test_templates_command__an_unknown_name_is_rejected(build, tmp_path):
    context = write_context(tmp_path)
    unknown = await build(context, "agnet")
    assert unknown.returncode == 78
    assert "Bundled templates: agent, relay-workspace" in unknown.stderr
    nowhere = await build(context, "--backend", "moon")
    assert nowhere.returncode == 78
    assert "moon" in nowhere.stderr


@pytest.mark.slow
async def test_templates_command__an_interrupt_leaves_the_build_running(server, build, tmp_path):
    context = write_context(tmp_path, "RUN sleep 3")
    command = server.command("template", "build", "--template-dir", str(context))
    terminal, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *command, env=server.environment(), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    os.set_blocking(terminal, False)

    async def is_at_the_step():
        nonlocal said
        with suppress(BlockingIOError):
            said += os.read(terminal, 65536)
        return b"RUN sleep 3" in said

    await until(is_at_the_step, timeout=60)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(30):
        assert await process.wait() == 130
    os.close(terminal)
    assert b"\r\x1b[2K" in said, "it was no terminal's"
    followed = await build(context)
    assert followed.returncode == 0, followed.stderr
    assert followed.stdout.count("RUN sleep 3") == 2  # under both names
