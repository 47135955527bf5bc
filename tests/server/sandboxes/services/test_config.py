"""What the services in a sandbox are told, on a real database and engine."""

import asyncio
import json

import pytest

from sandbox_server.domain.errors import BackendUnavailable, ToolsRefused
from sandbox_server.domain.requests import ForkRequest
from sandbox_server.domain.state import State
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.sandboxes.services.encrypted_columns import seal_envs
from sandbox_server.sandboxes.services.settings import settings_of
from sandbox_server.sandboxes.services.settings_file import SETTINGS_FILE
from tests.engine.polling import until
from tests.server.support.fault_proxy import answer_with, lose_answer
from tests.server.support.in_process_server import PUBLIC, running_server
from tests.server.support.managed_sandboxes import MINUTE

pytestmark = pytest.mark.needs_engine

SERVERS = {"mine": {"command": "npx", "args": ["-y", "a-server"], "env": {"KEY": "a-secret"}}}
LONG = {name: name * 100_000 for name in "ABCD"}
OTHERS = {"other": {"url": "https://example.org/mcp"}}


def furnishing_of(server):
    return ServiceConfigWriter(
        server.living.sessions, server.living.backends, server.living.vault, PUBLIC
    )


async def use(server, sandbox_id):
    return await server.controller.use(server.caller, sandbox_id)


async def run(server, sandbox_id, command, **options):
    """Run a command in a sandbox that runs already; gives what it wrote."""
    row = await server.living.row(sandbox_id)
    assert row.state is State.RUNNING
    inside = server.living.backend.inside(server.controller.find_access(row))
    finished = await inside.run_command(command, timeout=MINUTE, **options)
    return finished.output.decode().strip()


async def told(server, sandbox_id):
    """Read what the sandbox's services read."""
    return json.loads(await run(server, sandbox_id, f"cat {SETTINGS_FILE}"))


async def update(server, sandbox_id, **patch):
    return await server.controller.update(server.caller, sandbox_id, patch)


async def until_told(server, sandbox_id, servers):
    async def is_told():
        written = await run(server, sandbox_id, f"cat {SETTINGS_FILE} 2>/dev/null || echo null")
        return (json.loads(written) or {}).get("mcp_servers") == servers

    await until(is_told, timeout=30)


async def test_service_config__is_complete_and_private_before_the_sandbox_runs(server):
    sandbox_id = (await server.running(mcp_servers=SERVERS, envs=LONG)).id
    settings = await told(server, sandbox_id)
    assert settings["mcp_servers"] == SERVERS
    assert settings["envs"] == LONG
    assert settings["sandbox_id"] == sandbox_id
    assert settings["api_url"] == "http://localhost:8100"
    assert settings["ports_url"] == f"http://{{port}}-{sandbox_id}.localhost:8100"
    assert len({settings["token"], settings["password"]}) == 2
    assert await run(server, sandbox_id, f"stat -c '%a %U' {SETTINGS_FILE}") == "600 user"
    assert await run(server, sandbox_id, "stat -c '%a %U' /etc/sandbox") == "755 root"
    assert await run(server, sandbox_id, "ls -A /etc/sandbox") == "tools.json"
    row = await server.living.row(sandbox_id)
    assert settings["token"].encode() not in row.tools_token_sealed


async def test_service_config__a_sandbox_without_services_has_no_file(server):
    sandbox_id = (await server.running()).id
    assert await run(server, sandbox_id, f"test -e {SETTINGS_FILE} || echo none") == "none"
    assert (await server.living.row(sandbox_id)).tools_token_sealed is None


async def test_service_config__the_token_is_created_once_for_all_servers(server, replica):
    sandbox_id = (await server.running()).id
    used = await asyncio.gather(use(server, sandbox_id), use(replica, sandbox_id))
    tokens = await asyncio.gather(
        *(
            furnishing_of(one).token(use.row)
            for one, use in zip((server, replica), used, strict=True)
        )
    )
    await furnishing_of(server).rewrite(used[0].row)
    assert tokens[0] == tokens[1] == (await told(server, sandbox_id))["token"]


async def test_service_config__a_fork_gets_its_own_once_it_runs(server):
    source = await server.running(mcp_servers=SERVERS)
    fork = await server.copies.fork(server.caller, source.id, ForkRequest(), wait=2 * MINUTE)
    theirs, own = await told(server, source.id), await told(server, fork.id)
    assert own["sandbox_id"] == fork.id
    assert own["mcp_servers"] == SERVERS
    assert not {own["token"], own["password"]} & {theirs["token"], theirs["password"]}


async def test_service_config__mcp_servers_changed_while_running_are_written_at_once(server):
    sandbox_id = (await server.running(mcp_servers=SERVERS, envs={"A": "1"})).id
    before = await told(server, sandbox_id)
    await update(server, sandbox_id, mcp_servers=OTHERS)
    await until_told(server, sandbox_id, OTHERS)
    assert await told(server, sandbox_id) == {**before, "mcp_servers": OTHERS}
    await update(server, sandbox_id, mcp_servers={})
    await until_told(server, sandbox_id, {})


async def test_service_config__mcp_servers_changed_while_paused_are_written_on_resume(server):
    sandbox_id = (await server.paused(mcp_servers=SERVERS)).id
    await update(server, sandbox_id, mcp_servers=OTHERS)
    assert (await server.living.row(sandbox_id)).state is State.PAUSED
    await server.controller.resume(server.caller, sandbox_id)
    assert (await told(server, sandbox_id))["mcp_servers"] == OTHERS


async def test_service_config__a_resume_writes_nothing_that_is_current(server):
    sandbox_id = (await server.running(mcp_servers=SERVERS)).id
    before = await run(server, sandbox_id, f"stat -c %i-%Z {SETTINGS_FILE}")
    await server.controller.pause(server.caller, sandbox_id)
    await server.controller.resume(server.caller, sandbox_id)
    assert await run(server, sandbox_id, f"stat -c %i-%Z {SETTINGS_FILE}") == before


async def test_service_config__a_sandbox_that_rejects_the_file_runs_and_gets_it_later(server):
    sandbox_id = (await server.paused(mcp_servers=SERVERS)).id
    await server.controller.resume(server.caller, sandbox_id)
    in_the_way = f"rm {SETTINGS_FILE} && mkdir -p {SETTINGS_FILE}/in-the-way"
    await run(server, sandbox_id, in_the_way, user="root")
    await server.controller.pause(server.caller, sandbox_id)
    await update(server, sandbox_id, mcp_servers=OTHERS)
    row = await server.controller.resume(server.caller, sandbox_id)
    assert (row.state, row.services_digest) == (State.RUNNING, None)
    await run(server, sandbox_id, f"rm -r {SETTINGS_FILE}", user="root")
    await until_told(server, sandbox_id, OTHERS)


@pytest.mark.parametrize(
    "fault", [answer_with(502), pytest.param(lose_answer, marks=pytest.mark.slow)]
)
async def test_service_config__a_broken_connection_is_retried(database, faulty, proxy, fault):
    async with running_server(database, faulty) as server:
        proxy.on("POST /process.Process/Start", fault)
        row = await server.running(mcp_servers=SERVERS)

        async def is_noted():
            return (await faulty.row(row.id)).services_digest is not None

        await until(is_noted, timeout=30)
        assert await proxy.has_seen("POST /process.Process/Start", times=2)
        assert (await told(server, row.id))["mcp_servers"] == SERVERS


async def test_service_config__the_failure_reason_contains_no_secrets(server):
    sandbox_id = (await server.running()).id
    await run(server, sandbox_id, f"mkdir -p {SETTINGS_FILE}/in-the-way", user="root")
    row = (await use(server, sandbox_id)).row
    with pytest.raises(ToolsRefused, match=f"{SETTINGS_FILE}.*in its place") as refused:
        await furnishing_of(server).rewrite(row)
    assert await furnishing_of(server).token(await server.living.row(row.id)) not in str(
        refused.value
    )
    assert await run(server, sandbox_id, "ls -A /etc/sandbox") == "tools.json"


async def hold_writing(server, sandbox_id):
    """Have whatever is written wait, in the middle, until something is said to /tmp/hold."""
    held = """printf '#!/bin/sh\\ncat /tmp/hold; exec chown.real "$@"\\n' > /usr/bin/chown"""
    hold = (
        f"mkfifo /tmp/hold; mv /usr/bin/chown /usr/bin/chown.real; {held}; chmod 755 /usr/bin/chown"
    )
    await run(server, sandbox_id, hold, user="root")


async def until_held(inside):
    async def is_held():
        try:
            found = await inside.run_command("pgrep -f 'cat /tmp/hol[d]'", timeout=MINUTE)
        except BackendUnavailable:  # it is not resumed yet
            return False
        return found.exit_code == 0

    await until(is_held, timeout=60)


async def let_go(inside):
    await inside.run_command("echo > /tmp/hold", timeout=MINUTE, user="root")


async def test_service_config__mcp_servers_changed_during_a_write_are_written_afterwards(server):
    sandbox_id = (await server.running(mcp_servers=SERVERS)).id
    await hold_writing(server, sandbox_id)
    row = await server.controller.pause(server.caller, sandbox_id)
    await update(server, sandbox_id, mcp_servers={})
    resuming = asyncio.create_task(server.controller.resume(server.caller, sandbox_id))
    inside = server.living.backend.inside(server.controller.find_access(row))
    await until_held(inside)
    await update(server, sandbox_id, mcp_servers=OTHERS)
    await let_go(inside)
    assert (await resuming).state is State.RUNNING
    await until_held(inside)
    await let_go(inside)
    await until_told(server, sandbox_id, OTHERS)


async def test_service_config__a_late_writer_leaves_no_old_settings(server):
    sandbox_id = (await server.running(mcp_servers=SERVERS)).id
    await hold_writing(server, sandbox_id)
    row = await server.controller.pause(server.caller, sandbox_id)
    await update(server, sandbox_id, mcp_servers=OTHERS)
    resuming = asyncio.create_task(server.controller.resume(server.caller, sandbox_id))
    inside = server.living.backend.inside(server.controller.find_access(row))
    await until_held(inside)
    await finish_elsewhere(server, await server.living.row(sandbox_id), {"newest": {}})
    await let_go(inside)
    await until_held(inside)
    await let_go(inside)
    await until_told(server, sandbox_id, {"newest": {}})
    await resuming


async def finish_elsewhere(server, row, servers):
    """Have another server come first, which has written other settings."""
    vault, token = server.living.vault, await furnishing_of(server).token(row)
    row.envs_sealed = seal_envs(vault, row.id, {"mcp_servers": servers})
    digest = settings_of(row, token, vault=vault, public=PUBLIC).digest(row.backend_sandbox_id)
    await server.living.change(
        row.id,
        state=State.RUNNING,
        generation=row.generation + 1,
        envs_sealed=row.envs_sealed,
        services_digest=digest,
    )


async def test_service_config__secrets_are_not_visible_in_the_process_list(server):
    sandbox_id = (await server.running()).id
    await hold_writing(server, sandbox_id)
    used = await use(server, sandbox_id)
    inside = used.backend.inside(used.access)
    writing = asyncio.create_task(furnishing_of(server).rewrite(used.row))
    await until_held(inside)
    seen = await run(
        server, sandbox_id, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ", user="root"
    )
    await let_go(inside)
    await writing
    assert "/etc/sandbox/.tools." in seen
    assert (await told(server, sandbox_id))["token"] not in seen
