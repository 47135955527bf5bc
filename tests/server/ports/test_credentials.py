"""Credentials of callers never reach a sandbox."""

import re

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect

from sandbox_server.proxy.targets import PortTarget, path_of
from tests.server.support.full_server import PORT
from tests.server.support.request_recorder import Recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]

OWN = {"Authorization": "Bearer the-applications", "Cookie": "session=1; theme=dark"}


def require_none_of_ours(got, *secrets):
    assert not any(secret in str(got) for secret in secrets)
    assert re.search("sb[xtl]_", str(got)) is None


@pytest_asyncio.fixture(loop_scope="module")
async def link(outside, sandbox_id):
    """Create a link to the recorder; returns its path and query, and the ticket."""
    async with outside.api() as api:
        made = await api.post(
            f"/v1/sandboxes/{sandbox_id}/ports/{PORT}/links", json={"path": "/a?b=1"}
        )
    assert made.status_code == 201, made.text
    target = made.json()["url"].partition(outside.host)[2]
    return target, target.partition("ticket=")[2]


@pytest.mark.parametrize("header", ["X-API-Key", "Authorization"])
async def test_port_credentials__a_key_is_not_forwarded_from_a_host(outside, sandbox_id, header):
    value = f"Bearer {outside.key}" if header == "Authorization" else outside.key
    async with outside.at(sandbox_id, PORT) as caller:
        got = Recorded.of((await caller.get("/", headers={**OWN, header: value})).text)
    require_none_of_ours(got, outside.key)
    assert got.header("Cookie") == OWN["Cookie"]
    applications = None if header == "Authorization" else OWN["Authorization"]
    assert got.header("Authorization") == applications


@pytest.mark.parametrize("header", ["X-API-Key", "Authorization"])
async def test_port_credentials__a_key_is_not_forwarded_from_a_path(outside, sandbox_id, header):
    value = f"Bearer {outside.key}" if header == "Authorization" else outside.key
    path = path_of(PortTarget(sandbox_id, PORT))
    async with outside.api() as api:
        del api.headers["X-API-Key"]
        got = Recorded.of((await api.get(f"{path}/a?b=1", headers={**OWN, header: value})).text)
    require_none_of_ours(got, outside.key)
    assert got.target == "/a?b=1"
    assert got.header("Cookie") is None  # all paths of the API share them


async def test_port_credentials__a_key_in_any_other_place_is_not_forwarded(outside, sandbox_id):
    sent = {
        "X-API-Key": outside.key,
        "Cookie": f"a=1; key={outside.key}; b=2",
        "Referer": f"http://elsewhere/?ticket=%73{outside.key[1:]}",
        "X_API_Key": outside.key,
        "Sec-WebSocket-Protocol": f"bearer.{outside.key}",
    }
    async with outside.at(sandbox_id, PORT, **sent) as caller:
        query = f"a=1&ticket={outside.key}&key=%73{outside.key[1:]}&ticket=mine"
        got = Recorded.of((await caller.get(f"/?{query}")).text)
    require_none_of_ours(got, outside.key)
    assert got.target == "/?a=1&ticket=mine"
    assert got.header("Cookie") == "a=1; b=2"


async def test_port_credentials__the_ticket_of_a_link_is_not_forwarded(outside, sandbox_id, link):
    target, ticket = link
    async with outside.at(sandbox_id, PORT) as program:
        got = Recorded.of((await program.get(target, headers=OWN)).text)
    require_none_of_ours(got, ticket)
    assert got.target == "/a?b=1"
    assert got.header("Authorization") == OWN["Authorization"]


async def test_port_credentials__the_cookie_of_a_link_is_not_forwarded(outside, sandbox_id, link):
    target, ticket = link
    async with outside.at(sandbox_id, PORT) as browser:
        first = await browser.get(target, headers={"Accept": "text/html"})
        assert first.status_code == 303
        assert first.headers["Location"] == f"http://{outside.host_of(sandbox_id, PORT)}/a?b=1"
        cookie = first.headers["Set-Cookie"].partition(";")[0]
        got = Recorded.of((await browser.get("/", headers={"Cookie": f"a=1; {cookie}; b=2"})).text)
    require_none_of_ours(got, ticket)
    assert got.header("Cookie") == "a=1; b=2"


async def test_port_credentials__websocket_credentials_are_not_forwarded(outside, sandbox_id, link):
    target, ticket = link
    path = path_of(PortTarget(sandbox_id, PORT))
    host = outside.host_of(sandbox_id, PORT)
    by_key = {"X-API-Key": outside.key}
    ways = [
        (f"ws://{host}/a?b=1", by_key),
        (f"ws://{host}/a?b=1", {"Cookie": f"sandbox-preview={ticket}"}),
        (f"ws://{host}{target}", {}),
        (f"ws://{outside.host}{path}/a?b=1", by_key),
    ]
    for url, headers in ways:
        async with connect(
            url, host="127.0.0.1", port=outside.port, additional_headers=headers
        ) as socket:
            got = Recorded.of_head(await socket.recv(decode=True))
        require_none_of_ours(got, ticket, outside.key)
        assert got.target == "/a?b=1"


async def test_port_credentials__the_login_cookie_is_not_forwarded(outside, sandbox_id):
    async with outside.api(**{"Sec-Fetch-Site": "same-origin"}) as page:
        signed_in = await page.post("/v1/login")
    assert signed_in.status_code == 201, signed_in.text
    cookie = signed_in.headers["Set-Cookie"].partition(";")[0]
    secret = cookie.partition("=")[2]
    sent = {"Cookie": f"a=1; {cookie}; __Host-{cookie}; sandbox-login=x; other={secret}; b=2"}
    path = path_of(PortTarget(sandbox_id, PORT))
    by_key = {**sent, "X-API-Key": outside.key}
    async with outside.at(sandbox_id, PORT) as caller:
        got = Recorded.of((await caller.get("/", headers=by_key)).text)
        alone = await caller.get("/", headers={**sent, "Sec-Fetch-Site": "same-origin"})
    require_none_of_ours(got, secret)
    assert got.header("Cookie") == "a=1; b=2"
    assert alone.status_code == 401
    async with outside.api() as api:
        got = Recorded.of((await api.get(f"{path}/a", headers=by_key)).text)
    require_none_of_ours(got, secret)
    assert got.header("Cookie") is None


async def test_browser_login__neither_reaches_nor_resumes_a_server_in_a_sandbox(
    outside, sandbox_id
):
    own = {"Sec-Fetch-Site": "same-origin"}
    async with outside.api() as api:
        signed_in = await api.post("/v1/login", headers=own)
        cookie = signed_in.headers["Set-Cookie"].partition(";")[0]
        await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
        del api.headers["X-API-Key"]
        page = {**own, "Cookie": cookie}
        for below in (f"ports/{PORT}/proxy/", "mcp/", "mcp", "agent/socket"):
            asked = {**page, "Upgrade": "websocket", "Connection": "Upgrade"}
            for headers in (page, asked):
                answer = await api.get(f"/v1/sandboxes/{sandbox_id}/{below}", headers=headers)
                assert answer.status_code in {400, 403}, (below, answer.text)
        state = (await api.get(f"/v1/sandboxes/{sandbox_id}", headers=page)).json()["state"]
    async with outside.api() as api:
        await api.post(f"/v1/sandboxes/{sandbox_id}/resume")
    assert state == "paused"


async def test_port_credentials__clients_cannot_set_the_providers_tokens(outside, sandbox_id):
    sent = {
        "X-API-Key": outside.key,
        "E2b-Sandbox-Id": "another",
        "E2b-Sandbox-Port": "49983",
        "E2B_Sandbox_Id": "another",
        "X-Forwarded-Host": "bank.example",
        "X-Forwarded-For": "1.2.3.4",
        "X_Forwarded_Proto": "https",
        "Forwarded": "for=1.2.3.4",
        "X-Real-IP": "1.2.3.4",
    }
    async with outside.at(sandbox_id, PORT, **sent) as caller:
        got = Recorded.of((await caller.get("/")).text)
    assert not any(word in str(got) for word in ("another", "49983", "bank", "1.2.3.4", "https"))
    assert got.header("X-Forwarded-Host") == outside.host_of(sandbox_id, PORT)
    assert got.header("X-Forwarded-For") == "127.0.0.1"
