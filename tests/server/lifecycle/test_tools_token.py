import asyncio
import json

import pytest

from sandbox_server.domain.errors import ToolsRefused
from sandbox_server.domain.requests import ForkRequest
from sandbox_server.lifecycle.tools_token import TOOLS_FILE, ToolsTokens
from tests.server.lifecycle.living import MINUTE


def tokens_at(server):
    return ToolsTokens(server.living.sessions, server.living.vault)


async def use(server, sandbox_id):
    return await server.controller.use(server.caller, sandbox_id)


async def run(server, sandbox_id, command, **options):
    used = await use(server, sandbox_id)
    finished = await used.backend.inside(used.access).run_command(
        command, timeout=MINUTE, **options
    )
    return finished.output.decode().strip()


async def told(server, sandbox_id):
    """Read what the sandbox's tool server reads."""
    return json.loads(await run(server, sandbox_id, f"cat {TOOLS_FILE}"))["token"]


async def test_a_token_is_made_once_and_told_to_nobody_but_the_tool_server(server):
    sandbox_id = (await server.running()).id
    token = await tokens_at(server).get(await use(server, sandbox_id))
    assert await tokens_at(server).get(await use(server, sandbox_id)) == token
    assert await told(server, sandbox_id) == token
    assert await run(server, sandbox_id, f"stat -c '%a %U' {TOOLS_FILE}") == "600 user"
    assert await run(server, sandbox_id, "stat -c '%a %U' /etc/sandbox") == "755 root"
    assert token.encode() not in (await server.living.row(sandbox_id)).tools_token_sealed


async def test_two_servers_that_use_a_sandbox_first_agree_on_its_token(server, replica):
    sandbox_id = (await server.running()).id
    used = await asyncio.gather(use(server, sandbox_id), use(replica, sandbox_id))
    tokens = await asyncio.gather(
        *(tokens_at(one).get(use) for one, use in zip((server, replica), used, strict=True))
    )
    assert tokens[0] == tokens[1] == await told(server, sandbox_id)


async def test_a_fork_has_a_token_of_its_own(server):
    sandbox_id = (await server.running()).id
    token = await tokens_at(server).get(await use(server, sandbox_id))
    fork = await server.controller.fork(server.caller, sandbox_id, ForkRequest(), wait=2 * MINUTE)
    others = await tokens_at(server).get(await use(server, fork.id))
    assert others != token
    assert await told(server, fork.id) == others
    assert await told(server, sandbox_id) == token


async def test_a_sandbox_that_takes_no_token_says_why(server):
    sandbox_id = (await server.running()).id
    await run(server, sandbox_id, f"mkdir -p {TOOLS_FILE}/in-the-way", user="root")
    with pytest.raises(ToolsRefused, match=TOOLS_FILE) as refused:
        await tokens_at(server).get(await use(server, sandbox_id))
    token = await tokens_at(server).get(await use(server, sandbox_id))
    assert token not in str(refused.value)
