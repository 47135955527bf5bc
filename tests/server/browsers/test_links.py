"""URLs of a browser: what they reach, for whom and how long. A recorder stands in for the browser."""

import asyncio
import json
import re
from datetime import timedelta
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from sandbox_server.access.api_keys import ApiKeys
from sandbox_server.browsers.tokens import BrowserUse, in_a_while
from tests.server.browsers.conftest import CDP_PORT
from tests.server.support.full_server import WAIT, inside, new_sandbox
from tests.server.support.request_recorder import Recorded, start_recorder

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]


async def links_of(outside, sandbox_id, *, key=None, **fields):
    async with outside.api(**({} if key is None else {"X-API-Key": key})) as api:
        made = await api.post(f"/v1/sandboxes/{sandbox_id}/browser/links", json=fields)
    assert made.status_code == 201, made.text
    return made.json()


def attached(outside, url):
    """Connect to a URL, whose host may be one that only browsers resolve."""
    return connect(url, host="127.0.0.1", port=outside.port, open_timeout=WAIT)


async def get(outside, url, **headers):
    parts = urlsplit(url)
    async with httpx.AsyncClient(timeout=WAIT) as client:
        path = f"{parts.path}?{parts.query}"
        host = {"Host": parts.netloc, **headers}
        return await client.get(f"http://127.0.0.1:{outside.port}{path}", headers=host)


async def test_sandbox__a_template_with_a_browser_has_its_urls(outside, sandbox_id):
    async with outside.api() as api:
        sandbox = (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()
    assert sandbox["cdp_url"].startswith(f"ws://{outside.host}/browser/sbb_")
    assert sandbox["webdriver_url"].startswith(f"http://{outside.host}/browser/sbb_")
    assert sandbox["webdriver_url"].endswith("/webdriver")
    assert sandbox["live_url"].startswith(
        f"http://{outside.host_of(sandbox_id, 9222)}/browser/sbb_"
    )
    async with attached(outside, sandbox["cdp_url"]) as socket:
        assert Recorded.of_head(str(await socket.recv())).target == "/devtools/browser/B1"


async def test_sandbox__readers_do_not_get_the_urls(outside, sandbox_id):
    _, key = await outside.new_key(scopes=["read"])
    async with outside.api(**{"X-API-Key": key}) as api:
        sandbox = (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()
        refused = await api.post(f"/v1/sandboxes/{sandbox_id}/browser/links")
    assert sandbox["cdp_url"] is sandbox["webdriver_url"] is sandbox["live_url"] is None
    assert refused.status_code == 403


async def test_cdp__the_browser_sees_its_own_host_and_no_origin_compression_or_token(
    outside, sandbox_id
):
    url = (await links_of(outside, sandbox_id))["cdp_url"]
    async with connect(
        f"{url}/devtools/page/P1",
        origin=Origin("https://a.example"),
        additional_headers={"Cookie": "a=b"},
        open_timeout=WAIT,
    ) as socket:
        seen = Recorded.of_head(str(await socket.recv()))
        await socket.send('{"id":1}')
        assert await socket.recv() == '{"id":1}'
    assert seen.target == "/devtools/page/P1"
    assert seen.header("Host") == "localhost:9222"
    assert "sbb_" not in str(seen)
    for name in ("Origin", "Cookie", "Sec-WebSocket-Extensions"):
        assert seen.header(name) is None


async def test_cdp__close_and_crash_are_answered_by_the_proxy(outside, sandbox_id):
    url = (await links_of(outside, sandbox_id))["cdp_url"]
    async with attached(outside, url) as socket:
        await socket.recv()
        await socket.send('{"id":1,"method":"Browser.crash"}')
        assert "refused" in json.loads(await socket.recv())["error"]["message"]
        await socket.send('{"id":2,"method":"Browser.close"}')
        assert json.loads(await socket.recv()) == {"id": 2, "result": {}}
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    assert socket.close_code == 1000


async def test_json__descriptions_name_urls_that_work_for_the_client(outside, sandbox_id):
    base = (await links_of(outside, sandbox_id))["cdp_url"].replace("ws", "http", 1)
    version = (await get(outside, f"{base}/json/version/")).json()
    [page] = (await get(outside, f"{base}/json/list")).json()
    websocket = base.replace("http", "ws", 1)
    assert version["webSocketDebuggerUrl"] == f"{websocket}/devtools/browser/B1"
    assert page["webSocketDebuggerUrl"] == f"{websocket}/devtools/page/P1"
    assert page["devtoolsFrontendUrl"] == (
        f"{base}/devtools/inspector.html?ws={base.partition('://')[2]}/devtools/page/P1"
    )
    async with attached(outside, version["webSocketDebuggerUrl"]) as socket:
        assert Recorded.of_head(str(await socket.recv())).target == "/devtools/browser/B1"


def live_base(links):
    return links["live_url"].removesuffix("/live")


async def test_live_view__is_a_page_of_this_server_on_the_host_of_the_sandbox(outside, sandbox_id):
    live_url = (await links_of(outside, sandbox_id))["live_url"]
    assert urlsplit(live_url).netloc == outside.host_of(sandbox_id, 9222)
    page = await get(outside, live_url)
    assert (page.status_code, page.headers["Referrer-Policy"]) == (200, "no-referrer")
    policy = page.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'self'" in policy
    for name in re.findall(r'(?:src|href)="(live/[^"]+)"', page.text):
        assert (await get(outside, f"{live_url.removesuffix('live')}{name}")).status_code == 200
    state = (await get(outside, f"{live_url}/state")).json()
    assert (state["mode"], state["sandbox"]) == ("control", "running")
    unknown = await get(outside, f"{live_url}/index.html")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "browser-path-not-found")


async def test_live_view__opens_devtools_on_request(outside, sandbox_id):
    live_url = (await links_of(outside, sandbox_id))["live_url"]
    opened = await get(outside, f"{live_url}/devtools")
    assert opened.status_code == 303
    front_end = opened.headers["Location"]
    assert urlsplit(front_end).netloc == outside.host_of(sandbox_id, 9222)
    page = await get(outside, front_end)
    assert Recorded.of(page.text).target.startswith("/devtools/inspector.html?ws=")
    assert "content-security-policy" not in page.headers
    socket_url = f"ws://{front_end.partition('ws=')[2]}"
    async with attached(outside, socket_url) as socket:
        assert Recorded.of_head(str(await socket.recv())).target == "/devtools/page/P1"


async def test_live_view__a_link_for_watching_passes_no_command_and_no_other_path(
    outside, sandbox_id
):
    links = await links_of(outside, sandbox_id, live_mode="view")
    assert (await get(outside, f"{links['live_url']}/state")).json()["mode"] == "view"
    websocket = live_base(links).replace("http", "ws", 1) + "/devtools/browser"
    async with attached(outside, websocket) as socket, asyncio.timeout(WAIT):
        await socket.recv()
        await socket.send('{"id":1,"method":"Page.navigate"}')
        assert "for watching only" in json.loads(await socket.recv())["error"]["message"]
        await socket.send('{"id":2,"method":"Page.startScreencast"}')
        assert json.loads(await socket.recv())["method"] == "Page.startScreencast"
    token = live_base(links).rpartition("/")[2]
    on_api = f"http://{outside.host}/browser/{token}"
    for base in (live_base(links), on_api):
        for path in ("/json/list", "/json/new", "/devtools/inspector.html", "/webdriver/status"):
            assert (await get(outside, base + path)).status_code in {403, 404}
    assert (await get(outside, f"{links['live_url']}/devtools")).status_code == 403


async def test_live_view__watching_does_not_resume_a_paused_sandbox(outside):
    async with new_sandbox(outside) as sandbox_id, outside.api() as api:
        await start_recorder(await inside(outside, sandbox_id), CDP_PORT)
        links = await links_of(outside, sandbox_id, live_mode="view")
        assert (await api.post(f"/v1/sandboxes/{sandbox_id}/pause")).status_code == 200
        assert (await get(outside, f"{links['live_url']}/state")).json()["sandbox"] == "paused"
        websocket = live_base(links).replace("http", "ws", 1) + "/devtools/browser"
        with pytest.raises(InvalidStatus) as refused:
            async with attached(outside, websocket):
                pass
        assert refused.value.response.status_code == 409
        assert (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()["state"] == "paused"


async def test_live_view__pages_of_the_browser_run_no_scripts_on_the_host_of_the_api(
    outside, sandbox_id
):
    base = (await links_of(outside, sandbox_id))["cdp_url"].replace("ws", "http", 1)
    page = await get(outside, f"{base}/devtools/inspector.html")
    assert page.headers["content-security-policy"] == "sandbox"


async def test_link__a_viewer_is_disconnected_when_it_expires(outside, sandbox_id):
    components = outside.components
    caller = await components.authenticator.authenticate(outside.key)
    token = components.browser_tokens.issue(
        caller, sandbox_id, BrowserUse.VIEW, expires_at=in_a_while(timedelta(seconds=3))
    )
    url = f"ws://{outside.host}/browser/{token}/devtools/page/P1"
    async with attached(outside, url) as socket, asyncio.timeout(WAIT):
        await socket.recv()
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    assert (socket.close_code, socket.close_reason) == (4401, "The link has expired.")
    with pytest.raises(InvalidStatus) as refused:
        async with attached(outside, url):
            pass
    assert refused.value.response.status_code == 401


async def test_link__ends_with_its_key_and_so_do_its_connections(outside, sandbox_id):
    key_id, key = await outside.new_key(scopes=["sandboxes"])
    url = (await links_of(outside, sandbox_id, key=key))["cdp_url"]
    components = outside.components
    async with attached(outside, url) as socket, asyncio.timeout(WAIT):
        await socket.recv()
        await ApiKeys(components.sessions, components.authenticator).revoke(key_id)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    assert (socket.close_code, socket.close_reason) == (4401, "The key or link is no longer valid.")
    assert (await get(outside, url.replace("ws", "http", 1) + "/json/version")).status_code == 401


@pytest.mark.parametrize("token", ["", "sbb_", "sbb_" + "A" * 130, "x" * 50])
async def test_link__another_token_is_refused(outside, token):
    answer = await get(outside, f"http://{outside.host}/browser/{token}/json/version")
    assert answer.status_code == 401


async def test_link__is_of_no_use_for_the_api_or_another_sandbox(outside, sandbox_id):
    base = (await links_of(outside, sandbox_id))["cdp_url"].replace("ws", "http", 1)
    token = base.rpartition("/")[2]
    async with outside.api(**{"X-API-Key": token}) as api:
        assert (await api.get(f"/v1/sandboxes/{sandbox_id}")).status_code == 401
    other = outside.host_of("0" * 20, 9222)
    assert (await get(outside, f"http://{other}/browser/{token}/live")).status_code == 403


@pytest.mark.parametrize("path", ["/", "/json/unknown", "/etc/passwd", "/devtools%2f..%2fx"])
async def test_cdp__other_paths_do_not_exist(outside, sandbox_id, path):
    base = (await links_of(outside, sandbox_id))["cdp_url"].replace("ws", "http", 1)
    answer = await get(outside, base + path)
    assert (answer.status_code, answer.json()["code"]) == (404, "browser-path-not-found")


async def test_cdp__a_sandbox_without_a_browser_says_so(outside):
    async with outside.api() as api:
        made = (await api.post("/v1/sandboxes", json={})).json()
        answer = await get(outside, made["cdp_url"].replace("ws", "http", 1) + "/json/version")
        assert (answer.status_code, answer.json()["code"]) == (502, "browser-not-running")
        await api.delete(f"/v1/sandboxes/{made['id']}")


async def test_cdp__a_connection_waits_for_a_browser_that_is_started_again(outside):
    async with new_sandbox(outside) as sandbox_id:
        url = (await links_of(outside, sandbox_id))["cdp_url"]
        attaching = asyncio.create_task(attached(outside, url).__aenter__())
        await start_recorder(await inside(outside, sandbox_id), CDP_PORT)
        socket = await attaching
        assert Recorded.of_head(str(await socket.recv())).target == "/devtools/browser/B1"
        await socket.close()


async def test_cdp__a_connection_wakes_a_paused_sandbox_and_its_end_is_explained(outside):
    async with new_sandbox(outside) as sandbox_id, outside.api() as api:
        await start_recorder(await inside(outside, sandbox_id), CDP_PORT)
        url = (await links_of(outside, sandbox_id))["cdp_url"]
        assert (await api.post(f"/v1/sandboxes/{sandbox_id}/pause")).status_code == 200
        async with attached(outside, url) as socket, asyncio.timeout(WAIT):
            await socket.recv()
            await api.delete(f"/v1/sandboxes/{sandbox_id}")
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        assert socket.close_code == 1001
        assert "sandbox has ended" in socket.close_reason
