"""A real MCP client, through the server, with a tool server in a real sandbox."""

import asyncio
import json

import pytest
from fastmcp.client.messages import MessageHandler

from sandbox_server.supervisor.server_main import end_streams
from tests.engine.polling import until
from tests.server.support.databases import new_database
from tests.server.support.full_server import serving_outside

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


# A server on the port that gives every request the same response.
ALWAYS = """
import socketserver

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while (line := self.rfile.readline()) not in (b"", b"\\r\\n"):
            pass
        if line:
            self.wfile.write(HEAD)

socketserver.ThreadingTCPServer(("127.0.0.1", 6060), Handler).serve_forever()
"""


def always(*lines):
    head = "\r\n".join([f"HTTP/1.1 {lines[0]}", *lines[1:], "Content-Length: 0", "", ""])
    return ALWAYS.replace("HEAD", repr(head.encode()))


class Heard(MessageHandler):
    """Records messages that the server sends on its own."""

    def __init__(self):
        self.changed = asyncio.Event()

    async def on_tool_list_changed(self, message):
        self.changed.set()


async def call(client, tool, **arguments):
    return (await client.call_tool(tool, arguments)).content[0].text


async def seen_by(client):
    """List the requests that the tool server received: request line and headers as text."""
    return [
        "\n".join([line, *(f"{name}: {value}" for name, value in headers)])
        for line, *headers in json.loads(await call(client, "seen"))
    ]


async def until_listened(client, *, times=1):
    """Wait until this many listening streams have reached the tool server."""

    async def is_so():
        requests = await seen_by(client)
        return len([request for request in requests if request.startswith("GET")]) == times

    await until(is_so, timeout=30)


async def state_of(api, sandbox_id):
    return (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()["state"]


async def test_mcp__a_client_calls_tools_in_one_session_and_ends_it(client_of, sandbox_id):
    async with client_of(sandbox_id) as client:
        assert {tool.name for tool in await client.list_tools()} >= {"wait", "seen"}
        assert await call(client, "length", text="x" * 300_000) == "300000"
    async with client_of(sandbox_id) as client:
        requests = await seen_by(client)
    assert [request.split()[0] for request in requests].count("DELETE") == 1


async def test_mcp__progress_arrives_before_the_result(client_of, sandbox_id):
    waiting = asyncio.Event()

    async def note(progress, total, message):
        waiting.set()

    async with client_of(sandbox_id) as client, asyncio.timeout(20):
        called = asyncio.create_task(client.call_tool("wait", {}, progress_handler=note))
        await waiting.wait()
        assert not called.done()
        await call(client, "go_on")
        assert (await called).content[0].text == "went on"


async def test_mcp__server_messages_are_forwarded(client_of, sandbox_id):
    heard = Heard()
    async with client_of(sandbox_id, message_handler=heard) as client, asyncio.timeout(20):
        await until_listened(client)
        await call(client, "tell")
        await heard.changed.wait()


async def test_mcp__a_call_resumes_a_paused_sandbox(api, client_of, sandbox_id):
    async with client_of(sandbox_id) as client:
        assert await call(client, "length", text="before") == "6"
        await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
        assert await call(client, "length", text="after") == "5"
    assert await state_of(api, sandbox_id) == "running"


async def test_mcp__a_listening_client_does_not_keep_the_sandbox_awake_and_continues_after_resume(
    api, client_of, make_sandbox
):
    sandbox_id = await make_sandbox(idle_timeout_s=1)
    heard = Heard()

    async def is_paused():
        return await state_of(api, sandbox_id) == "paused"

    async with client_of(sandbox_id, message_handler=heard) as client, asyncio.timeout(60):
        await until_listened(client)
        await until(is_paused, timeout=30)
        await until_listened(client, times=2)
        await call(client, "tell")
        await heard.changed.wait()


async def test_mcp__listening_to_a_paused_sandbox_starts_at_once_and_does_not_resume_it(
    api, client_of, sandbox_id
):
    async with client_of(sandbox_id) as client:
        await until_listened(client)  # its initialization would resume the sandbox
        listening = {"Mcp-Session-Id": client.transport.get_session_id(), **ACCEPT}
        await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
        path = f"/v1/sandboxes/{sandbox_id}/mcp/"
        async with api.stream("GET", path, headers=listening) as stream:
            assert stream.status_code == 200
            assert await anext(stream.aiter_lines()) == ": paused"
            assert await state_of(api, sandbox_id) == "paused"


async def test_mcp__a_server_stop_ends_streams_of_paused_sandboxes(bundled_url, engine, tmp_path):
    async with (
        new_database(bundled_url) as url,
        serving_outside(url, engine, state_dir=tmp_path) as outside,
        outside.api() as api,
    ):
        sandbox = f"/v1/sandboxes/{(await api.post('/v1/sandboxes', json={})).json()['id']}"
        await api.post(f"{sandbox}/pause")
        async with api.stream("GET", f"{sandbox}/mcp/", headers=ACCEPT) as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == ": paused"
            end_streams(outside.components)
            assert [line async for line in lines] == [""]
        await api.delete(sandbox)


async def test_mcp__a_sandbox_without_a_tool_server_returns_an_error(api, make_sandbox):
    sandbox_id = await make_sandbox(tools=None)
    answer = await api.post(f"/v1/sandboxes/{sandbox_id}/mcp/", json=INITIALIZE, headers=ACCEPT)
    assert (answer.status_code, answer.json()["code"]) == (502, "tools-not-running")
    assert "6060" in answer.json()["remediation"]


@pytest.mark.parametrize("path", ["mcp", "mcp/"])
async def test_mcp__a_missing_or_extra_slash_is_accepted(api, sandbox_id, path):
    answer = await api.post(f"/v1/sandboxes/{sandbox_id}/{path}", json=INITIALIZE, headers=ACCEPT)
    assert answer.status_code == 200
    assert answer.json()["result"]["serverInfo"]["name"] == "tools of a test"


async def test_mcp__a_lost_token_is_written_again_without_failing_a_call(
    run, client_of, sandbox_id
):
    async with client_of(sandbox_id) as client:
        await run(sandbox_id, "rm -r /etc/sandbox")
        assert await call(client, "length", text="x" * 300_000) == "300000"
        await run(sandbox_id, "echo broken > /etc/sandbox/tools.json")
        assert await call(client, "length", text="again") == "5"


async def test_mcp__a_rejected_token_is_not_reported_as_a_wrong_api_key(api, make_sandbox):
    refusing = always("401 Unauthorized", "WWW-Authenticate: Bearer")
    sandbox_id = await make_sandbox(tools=refusing)
    answer = await api.post(f"/v1/sandboxes/{sandbox_id}/mcp/", json=INITIALIZE, headers=ACCEPT)
    assert (answer.status_code, answer.json()["code"]) == (502, "tools-refused")
    assert "WWW-Authenticate" not in answer.headers


async def test_mcp__redirects_of_the_tool_server_are_not_forwarded(api, make_sandbox):
    leading_away = always("307 Temporary Redirect", "Location: http://evil.example/")
    sandbox_id = await make_sandbox(tools=leading_away)
    answer = await api.post(f"/v1/sandboxes/{sandbox_id}/mcp/", json=INITIALIZE, headers=ACCEPT)
    assert "Location" not in answer.headers


@pytest.mark.parametrize(
    "headers_of",
    [
        lambda key: {"X-API-Key": key},
        lambda key: {"Authorization": f"Bearer {key}"},
        lambda key: {"Authorization": f"Bearer {key}", "X-API-Key": key, "Cookie": f"a={key}"},
    ],
    ids=["a header of ours", "a bearer", "everywhere"],
)
async def test_mcp__credentials_of_the_caller_are_not_forwarded(
    api, client_of, sandbox_id, headers_of
):
    key = api.headers["X-API-Key"]
    async with client_of(sandbox_id, headers=headers_of(key)) as client:
        await call(client, "tell")
        requests = await seen_by(client)
    assert len(requests) >= 4
    assert not [request for request in requests if key in request]
    bearers = {
        line
        for request in requests
        for line in request.splitlines()
        if line.lower().startswith("authorization")
    }
    assert len(bearers) == 1


async def test_mcp__the_sandboxs_token_is_never_returned(api, run, sandbox_id):
    answer = await api.post(f"/v1/sandboxes/{sandbox_id}/mcp/", json=INITIALIZE, headers=ACCEPT)
    token = json.loads(await run(sandbox_id, "cat /etc/sandbox/tools.json"))["token"]
    assert token not in answer.text + str(answer.headers)
    told = [
        (await api.get(path)).text
        for path in (f"/v1/sandboxes/{sandbox_id}", f"/v1/sandboxes/{sandbox_id}/timeline")
    ]
    assert not [text for text in told if token in text]


async def test_mcp__a_call_in_progress_keeps_the_sandbox_awake(api, client_of, make_sandbox):
    sandbox_id = await make_sandbox(idle_timeout_s=1)

    async def times():
        told = (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()
        assert told["state"] == "running"
        return told["last_activity_at"]

    async with client_of(sandbox_id) as client:
        called = asyncio.create_task(client.call_tool("wait", {}))
        for _ in range(4):
            before = await times()

            async def is_later(before=before):
                return await times() > before

            await until(is_later)
        await call(client, "go_on")
        assert (await called).content[0].text == "went on"
