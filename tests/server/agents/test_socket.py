"""WebSockets to the agent server in a sandbox; a program that echoes its requests stands in for it."""

import asyncio
import json

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sandbox_server.supervisor.server_main import end_streams
from tests.engine.polling import until
from tests.server.support.databases import new_database
from tests.server.support.full_server import WAIT, inside, serving_outside
from tests.server.support.request_recorder import PROGRAM, Recorded

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

SERVERS = {"mine": {"command": "a-server"}}
FILE = "/etc/sandbox/tools.json"

# Accepts the token in the current file, as agent servers do.
CHECK = f"""
    try:
        token = json.load(open({FILE!r}))["token"]
    except OSError:
        token = None
    if named.get("authorization") != f"Bearer {{token}}":
        writer.write(b"HTTP/1.1 401 Unauthorized\\r\\nContent-Length: 0\\r\\n\\r\\n")
        await writer.drain()
        return True
"""
AGENTS = PROGRAM.read_text().replace(
    '    if "upgrade" in named:', f'{CHECK}    if "upgrade" in named:', 1
)


async def start_agents(outside, sandbox_id):
    sandbox = await inside(outside, sandbox_id)
    await sandbox.files.write("/home/user/agents.py", AGENTS)
    await sandbox.commands.run("python3 agents.py 3000", background=True, timeout=0)
    listens = "until (echo >/dev/tcp/127.0.0.1/3000) 2>/dev/null; do sleep 0.05; done"
    await sandbox.commands.run(listens)


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox_id(outside, make_sandbox):
    sandbox_id = await make_sandbox(tools=None, mcp_servers=SERVERS)
    await start_agents(outside, sandbox_id)
    return sandbox_id


def attached(outside, sandbox_id, *, query="", **options):
    headers = options.pop("headers", {"X-API-Key": outside.key})
    return connect(
        f"ws://127.0.0.1:{outside.port}/v1/sandboxes/{sandbox_id}/agent/socket{query}",
        additional_headers=headers,
        open_timeout=WAIT,
        **options,
    )


async def read_on(socket):
    async with asyncio.timeout(WAIT):
        while True:
            await socket.recv()


async def closed(socket):
    """Wait for the close; returns its code."""
    with pytest.raises(ConnectionClosed) as over:
        await read_on(socket)
    assert over.value.rcvd is not None
    return over.value.rcvd.code


async def state_of(api, sandbox_id):
    return (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()


async def test_agent_socket__messages_are_forwarded_and_the_api_key_is_not(
    outside, api, run, sandbox_id
):
    key = outside.key
    settings = json.loads(await run(sandbox_id, f"cat {FILE}"))
    headers = {"Authorization": f"Bearer {key}", "X-API-Key": key, "Cookie": f"a={key}"}
    async with attached(
        outside, sandbox_id, headers=headers, query=f"?session=1&key={key}"
    ) as socket:
        head = await socket.recv()
        seen = Recorded.of_head(head)
        assert key not in head
        assert seen.target == "/?session=1"
        assert seen.header("Authorization") == f"Bearer {settings['token']}"
        for message in ("a prompt", b"\x00\xff", "x" * 300_000):
            await socket.send(message)
            assert await socket.recv() == message
        assert settings["token"] not in str(socket.response.headers)


async def test_agent_socket__a_ticket_is_accepted_unless_it_is_read_only(outside, api, sandbox_id):
    async def ticket(scope):
        wanted = {"scope": scope, "sandbox_id": sandbox_id}
        return (await api.post("/v1/tickets", json=wanted)).json()["ticket"]

    using = await ticket("sandboxes")
    async with attached(outside, sandbox_id, headers={}, query=f"?ticket={using}") as socket:
        assert using not in await socket.recv()
    with pytest.raises(InvalidStatus) as refused:
        await attached(outside, sandbox_id, headers={}, query=f"?ticket={await ticket('read')}")
    assert refused.value.response.status_code == 403


async def test_agent_socket__a_lost_token_is_written_again(outside, run, sandbox_id):
    await run(sandbox_id, f"rm {FILE}")
    async with attached(outside, sandbox_id) as socket:
        assert "Bearer" in await socket.recv()


async def test_agent_socket__connecting_resumes_the_sandbox_and_pings_are_no_activity(
    outside, api, make_sandbox
):
    sandbox_id = await make_sandbox(tools=None, mcp_servers=SERVERS)
    await start_agents(outside, sandbox_id)
    await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
    await api.patch(f"/v1/sandboxes/{sandbox_id}", json={"idle_timeout_s": 1})
    async with attached(outside, sandbox_id, ping_interval=0.2) as socket:
        await socket.recv()
        assert await closed(socket) == 1011
    assert (await state_of(api, sandbox_id))["state"] in {"pausing", "paused"}


async def test_agent_socket__messages_keep_the_sandbox_awake(outside, api, sandbox_id):
    await api.patch(f"/v1/sandboxes/{sandbox_id}", json={"idle_timeout_s": 4})
    async with attached(outside, sandbox_id) as socket:
        await socket.recv()
        for _ in range(3):
            before = (await state_of(api, sandbox_id))["last_activity_at"]

            async def is_later(before=before):
                await socket.send("go on")
                await socket.recv()
                told = await state_of(api, sandbox_id)
                assert told["state"] == "running"
                return told["last_activity_at"] > before

            await until(is_later, timeout=30)


async def test_agent_socket__a_revoked_key_closes_the_connection_with_its_code(
    outside, api, sandbox_id
):
    key_id, key = await outside.new_key(scopes=["sandboxes"])
    async with attached(outside, sandbox_id, headers={"X-API-Key": key}) as socket:
        await api.delete(f"/v1/keys/{key_id}")
        assert await closed(socket) == 4401


async def test_agent_socket__a_server_stop_closes_the_connection_with_its_code(
    bundled_url, engine, tmp_path
):
    async with (
        new_database(bundled_url) as url,
        serving_outside(url, engine, state_dir=tmp_path) as outside,
        outside.api() as api,
    ):
        made = await api.post("/v1/sandboxes", json={"mcp_servers": SERVERS})
        sandbox_id = made.json()["id"]
        await start_agents(outside, sandbox_id)
        async with attached(outside, sandbox_id) as socket:
            await socket.recv()
            end_streams(outside.components)
            assert await closed(socket) == 1001
        await api.delete(f"/v1/sandboxes/{sandbox_id}")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 400, "malformed-request"),
        ({"Connection": "Upgrade", "Upgrade": "websocket"}, 502, "agent-server-not-running"),
    ],
    ids=["no WebSocket", "no agent server"],
)
async def test_agent_socket__failures_before_the_upgrade_are_answered_with_a_problem(
    api, make_sandbox, headers, status, code
):
    sandbox_id = await make_sandbox(tools=None)
    answer = await api.get(f"/v1/sandboxes/{sandbox_id}/agent/socket", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
