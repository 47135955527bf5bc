"""A server that is killed while sandboxes wait for the build of the default template."""

import asyncio
import json

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Event, Sandbox
from tests.engine.polling import until
from tests.server.support.fault_proxy import FaultyProxy, Held
from tests.server.support.server_process import new_encryption_key, server_process
from tests.server.templates.bundled_templates import AT_START, write_context

pytestmark = [pytest.mark.needs_engine, pytest.mark.slow, pytest.mark.timeout(300)]

WAITING = 5


@pytest.fixture
async def server(engine, database_url, backend_at, tmp_path):
    """Provide a server that is not started, whose engine is behind a proxy."""
    context = write_context(tmp_path, "RUN sleep 2")
    async with FaultyProxy(engine.port) as proxy:
        backend = {
            "name": "local",
            "api_key": engine.api_key,
            "api_url": proxy.url,
            "sandbox_url": engine.url,
        }
        variables = {
            "DATABASE_URL": database_url,
            "SANDBOX_SERVER_BACKENDS": json.dumps([backend]),
            "SANDBOX_SERVER_ENCRYPTION_KEYS": new_encryption_key(),
            "SANDBOX_SERVER_LEASE_S": "2",
            "SANDBOX_SERVER_AGENT_TEMPLATE": "true",
            "SANDBOX_SERVER_TEMPLATE_DIR": str(context),
        }
        with server_process(variables=variables) as server:
            yield server, proxy
    await backend_at().templates.delete("agent")


@pytest.mark.parametrize("killed", ["before it is begun", "while it is built", "as it ends"])
async def test_agent_template__after_a_crash_it_is_built_once_and_waiting_sandboxes_start_once(
    server, sessions, killed
):
    server, proxy = server
    held = Held(carried_out=killed != "before it is begun")
    proxy.on("GET /v2/templates" if killed == "as it ends" else AT_START, held)
    await asyncio.to_thread(server.start)
    async with server.client() as client:
        asked = [
            await client.post("/v1/sandboxes?wait=0", json={"template": "agent"})
            for _ in range(WAITING)
        ]
        assert [one.json()["state"] for one in asked] == ["queued"] * WAITING
        await held.wait_reached()
        await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)

    async def all_run():
        async with sessions() as session:
            states = await session.scalars(select(Sandbox.state))
            return [str(state) for state in states] == ["running"] * WAITING

    await until(all_run, timeout=120, pause=0.2)
    begun = [line for line in proxy.seen if line.startswith(AT_START) and "builds" in line]
    assert len(begun) == (2 if killed == "before it is begun" else 1)
    creates = [line for line in proxy.seen if line == "POST /v2/sandboxes"]
    assert len(creates) == WAITING
    async with sessions() as session:
        started = await session.scalars(
            select(Event.sandbox_id).where(Event.type == "sandbox.starting")
        )
        assert sorted(started) == sorted(one.json()["id"] for one in asked)
    async with server.client() as client:
        for one in asked:
            await client.delete(f"/v1/sandboxes/{one.json()['id']}?wait=60")


async def test_agent_template__a_stop_during_the_build_delays_it_until_the_next_start(tmp_path):
    context = write_context(tmp_path, "RUN sleep 4", "RUN true")
    variables = {"SANDBOX_SERVER_AGENT_TEMPLATE": "true"}
    with server_process("--template-dir", str(context), variables=variables) as server:
        await asyncio.to_thread(server.start)

        async def build():
            async with server.client() as client:
                answer = await client.get("/v1/templates/agent")
                return answer.json()["builds"][0]

        async def is_at_the_step():
            return "RUN sleep 4" in ((await build())["state_reason"] or "")

        async def is_ready():
            return (await build())["state"] == "ready"

        await until(is_at_the_step, timeout=120, pause=0.1)
        assert await asyncio.to_thread(server.stop) == 0
        await asyncio.to_thread(server.start)
        await until(is_ready, timeout=120, pause=0.2)
        async with server.client() as client:
            made = await client.post("/v1/sandboxes", json={})
            assert made.json()["template"] == "agent", made.text
        followed = await asyncio.to_thread(
            server.run, "template", "build", "--template-dir", str(context)
        )
        assert "agent is ready at local" in followed.stdout
