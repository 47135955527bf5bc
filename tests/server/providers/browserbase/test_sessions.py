"""Browsers of this server at Browserbase, through both servers. A recorder stands in for the browser."""

from datetime import timedelta

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.engine.polling import until
from tests.server.support.fault_proxy import answer_with
from tests.server.support.full_server import WAIT
from tests.server.support.request_recorder import Recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]


async def ask(outside, method, path, **options):
    async with outside.api() as api:
        return await api.request(method, path, **options)


async def new_browser(outside, **fields):
    made = await ask(outside, "POST", "/v1/browsers", json=fields)
    assert made.status_code == 201, made.text
    return made.json()


def attached(url):
    return connect(url, open_timeout=WAIT)


async def test_browser__is_driven_through_both_servers(outside, account):
    made = await new_browser(outside, timeout_s=600, metadata={"a": "b"})
    session = await account.session_of(made["sandbox_id"])
    await account.start_browser(session["id"])
    async with attached(made["cdp_url"]) as socket:
        seen = Recorded.of_head(str(await socket.recv()))
        await socket.send('{"id":1}')
        assert await socket.recv() == '{"id":1}'
    assert seen.target == "/devtools/browser/B1"
    async with attached(f"{made['cdp_url']}/devtools/page/P1") as socket:
        assert Recorded.of_head(str(await socket.recv())).target == "/devtools/page/P1"
    base = made["cdp_url"].replace("ws", "http", 1)
    async with httpx.AsyncClient(timeout=WAIT) as client:
        version = await client.get(f"{base}/json/version")
        pages = await client.get(f"{base}/json/list")
        protocol = await client.get(f"{base}/json/protocol")
        live = await client.get(f"{base}/devtools/inspector.html")
    assert version.json()["webSocketDebuggerUrl"].startswith(f"{made['cdp_url']}/devtools/browser/")
    assert [page["webSocketDebuggerUrl"] for page in pages.json()] == [
        f"{made['cdp_url']}/devtools/page/P1"
    ]
    assert (protocol.status_code, protocol.json()["code"]) == (501, "lacks-capability")
    assert live.status_code == 303
    assert account.outside.host in live.headers["Location"]
    for answer in (version, pages, protocol, live):
        assert account.outside.key not in answer.text + str(answer.headers)
    assert account.outside.key not in str(made) + str(seen)

    await ask(outside, "POST", f"/v1/browsers/{made['id']}/release")

    async def is_released():
        found = await account.ask("GET", f"/sessions/{session['id']}")
        return found["status"] == "COMPLETED"

    await until(is_released, timeout=WAIT)


async def test_sandbox__a_request_by_capability_is_placed_and_what_it_lacks_is_refused(
    outside, account
):
    made = await ask(outside, "POST", "/v1/sandboxes", json={"capabilities": ["browser"]})
    assert made.status_code == 201, made.text
    sandbox = made.json()
    assert (sandbox["backend"], sandbox["template"]) == ("bb", "browser")
    assert sandbox["capabilities"] == ["browser"]
    path = f"/v1/sandboxes/{sandbox['id']}"
    assert (await ask(outside, "GET", path)).json()["services"] is None
    for capability, method, rest, body in (
        ("commands", "POST", "/commands", {"cmd": "true"}),
        ("commands", "POST", "/terminals", {}),
        ("files", "GET", "/files?path=/tmp", None),
        ("pause", "POST", "/pause", None),
        ("metrics", "GET", "/metrics", None),
    ):
        refused = await ask(outside, method, path + rest, json=body)
        assert (refused.status_code, refused.json()["code"]) == (501, "lacks-capability"), rest
        assert f"without the capability `{capability}`" in refused.json()["detail"]
    assert (await ask(outside, "GET", path)).json()["state"] == "running"
    await ask(outside, "DELETE", path)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "have browser only. Name the capability"),
        ({"template": "browser"}, "have browser only. Name the capability"),
        ({"capabilities": ["desktop"]}, "not desktop"),
        ({"capabilities": ["browser"], "envs": {"A": "b"}}, "not envs"),
        ({"capabilities": ["browser"], "mcp_servers": {"a": {"command": "b"}}}, "not mcp"),
    ],
)
async def test_sandbox__a_request_for_more_than_a_browser_is_refused(outside, fields, reason):
    refused = await ask(outside, "POST", "/v1/sandboxes", json=fields)
    assert refused.status_code == 422
    assert reason in refused.json()["detail"]


async def test_capabilities__the_matrix_shows_the_backend(outside):
    matrix = (await ask(outside, "GET", "/v1/capabilities")).json()
    assert matrix["backends"] == [{"name": "bb", "capabilities": ["browser"]}]
    ready = {one["name"] for one in matrix["templates"] if one["backends"] == {"bb": "ready"}}
    assert ready == {"browser"}


async def test_templates__none_is_built_there(outside):
    body = {"name": "mine", "from_image": "debian:12", "backends": ["bb"]}
    refused = await ask(outside, "POST", "/v1/templates", json=body)
    assert refused.status_code == 422
    assert "cannot build templates" in refused.json()["detail"]


async def test_queue__a_429_delays_a_browser_instead_of_failing_it(outside, provider):
    provider.on("POST /browserbase/v1/sessions", answer_with(429, "{}", Retry_After="1"))
    made = await new_browser(outside)
    assert made["state"] == "running"
    events = await ask(outside, "GET", f"/v1/sandboxes/{made['sandbox_id']}/events")
    assert "429" in events.text
    await ask(outside, "POST", f"/v1/browsers/{made['id']}/release")


async def test_browser__a_session_that_ends_at_browserbase_ends_here(outside, account):
    made = await new_browser(outside)
    session = await account.session_of(made["sandbox_id"])
    await account.ask("POST", f"/sessions/{session['id']}", json={"status": "REQUEST_RELEASE"})

    async def is_over():
        found = (await ask(outside, "GET", f"/v1/browsers/{made['id']}")).json()
        return found["state"] in {"error", "completed"}

    await until(is_over, timeout=timedelta(minutes=1).total_seconds())
