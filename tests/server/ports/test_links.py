"""Preview links: what they open, what they do not, and when they expire."""

import pytest
import pytest_asyncio
from sqlalchemy import func, update
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from sandbox_server.access.api_keys import ApiKeys
from sandbox_server.db.models import Ticket
from tests.server.support.full_server import PORT
from tests.server.support.request_recorder import Recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]

BROWSER = {"Accept": "text/html,*/*", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}


async def make_link(outside, sandbox_id, *, port=PORT, key=None, **fields):
    """Create a link; returns its path and query, and the ticket."""
    async with outside.api(**({} if key is None else {"X-API-Key": key})) as api:
        made = await api.post(f"/v1/sandboxes/{sandbox_id}/ports/{port}/links", json=fields)
    assert made.status_code == 201, made.text
    target = made.json()["url"].partition(outside.host)[2]
    return target, target.partition("ticket=")[2]


@pytest_asyncio.fixture(loop_scope="module")
async def ticket(outside, sandbox_id):
    return (await make_link(outside, sandbox_id))[1]


def visitor(outside, sandbox_id, ticket, *, port=PORT, **headers):
    """Create a client with the cookie of a link."""
    cookie = {"Cookie": f"sandbox-preview={ticket}"}
    return outside.at(sandbox_id, port, **BROWSER, **cookie, **headers)


async def end(outside, ticket_hash=None):
    """Expire all tickets."""
    async with outside.components.sessions.begin() as session:
        await session.execute(update(Ticket).values(expires_at=func.clock_timestamp()))
    outside.components.authenticator.clear_cache()


async def test_preview_link__the_first_visit_sets_a_cookie_and_removes_the_ticket(
    outside, sandbox_id
):
    target, ticket = await make_link(outside, sandbox_id, path="/a?b=1")
    async with outside.at(sandbox_id, PORT, **BROWSER) as browser:
        first = await browser.get(target)
        assert first.status_code == 303
        assert first.headers["Location"] == f"http://{outside.host_of(sandbox_id, PORT)}/a?b=1"
        assert first.headers["Set-Cookie"] == (
            f"sandbox-preview={ticket}; HttpOnly; Path=/; SameSite=lax"
        )
        assert first.headers["Referrer-Policy"] == "no-referrer"
    async with visitor(outside, sandbox_id, ticket) as browser:
        assert Recorded.of((await browser.get("/a?b=1")).text).target == "/a?b=1"


async def test_preview_link__a_path_with_two_slashes_does_not_redirect_to_another_host(
    outside, sandbox_id
):
    target, _ = await make_link(outside, sandbox_id, path="//evil.example/")
    async with outside.at(sandbox_id, PORT, **BROWSER) as browser:
        first = await browser.get(f"http://127.0.0.1:{outside.port}{target}")
    assert first.headers["Location"].startswith(f"http://{outside.host_of(sandbox_id, PORT)}/")


@pytest.mark.parametrize(
    "path", ["x", "/a b", "/a\nb", "/a#b", "/ä", "http://evil.example"], ids=range(6)
)
async def test_preview_link__opens_the_given_path(outside, sandbox_id, path):
    async with outside.api() as api:
        refused = await api.post(
            f"/v1/sandboxes/{sandbox_id}/ports/{PORT}/links", json={"path": path}
        )
    assert refused.status_code == 422


async def test_preview_link__opens_no_other_port_sandbox_or_api(outside, sandbox_id, ticket):
    other_id = sandbox_id[:-1] + ("0" if sandbox_id[-1] != "0" else "1")
    for place in ((sandbox_id, PORT + 1), (other_id, PORT)):
        async with visitor(outside, place[0], ticket, port=place[1]) as browser:
            assert (await browser.get("/")).status_code == 401
        async with outside.at(*place) as program:
            assert (await program.get(f"/?ticket={ticket}")).status_code == 403
    async with outside.api() as api:
        del api.headers["X-API-Key"]
        for path in (
            f"/v1/sandboxes/{sandbox_id}",
            f"/v1/sandboxes/{sandbox_id}/ports/{PORT}/proxy/",
        ):
            assert (await api.get(f"{path}?ticket={ticket}")).status_code == 403
            cookie = {"Cookie": f"sandbox-preview={ticket}"}
            assert (await api.get(path, headers=cookie)).status_code == 401


async def test_ticket__a_broader_ticket_is_not_accepted_at_a_port(outside, sandbox_id):
    async with outside.api() as api:
        made = await api.post("/v1/tickets", json={"scope": "sandboxes", "sandbox_id": sandbox_id})
    async with outside.at(sandbox_id, PORT, **BROWSER) as browser:
        refused = await browser.get(f"/?ticket={made.json()['ticket']}")
    assert refused.status_code == 403
    assert "set-cookie" not in refused.headers


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}),
        ("POST", {"Sec-Fetch-Site": "same-site"}),
        ("POST", {"Origin": "http://3000-{other}.{host}"}),
        ("GET", {"Origin": "http://{host}"}),
        ("POST", {"Origin": "null"}),
        ("POST", {"Origin": "http://[", "Sec-Fetch-Site": "same-origin"}),
    ],
    ids=["image", "fetch", "form", "neighbour", "api", "nobody", "nonsense"],
)
async def test_preview_link__requests_from_other_pages_are_refused(
    outside, sandbox_id, ticket, method, headers
):
    filled = {
        name: value.format(host=outside.host, other="0" * 20) for name, value in headers.items()
    }
    cookie = {"Cookie": f"sandbox-preview={ticket}"}
    async with outside.at(sandbox_id, PORT, **{**BROWSER, **cookie, **filled}) as browser:
        assert (await browser.request(method, "/")).status_code == 401


async def test_preview_link__requests_from_the_sandboxs_pages_are_accepted(
    outside, sandbox_id, ticket
):
    own = f"http://{outside.host_of(sandbox_id, PORT)}"
    for origin in (own, own.replace(str(PORT), "5173", 1)):
        async with visitor(outside, sandbox_id, ticket, Origin=origin) as browser:
            assert (await browser.post("/")).status_code == 200
    async with outside.at(sandbox_id, PORT, Cookie=f"sandbox-preview={ticket}") as browser:
        assert (
            await browser.get("/", headers={"Sec-Fetch-Site": "same-origin"})
        ).status_code == 200


async def test_preview_link__a_cookie_set_by_another_sandbox_does_not_block_access(
    outside, sandbox_id, ticket
):
    cookies = f"sandbox-preview=sbt_{'x' * 43}; sandbox-preview={ticket}"
    async with outside.at(sandbox_id, PORT, **BROWSER, Cookie=cookies) as browser:
        got = Recorded.of((await browser.get("/")).text)
    assert got.header("Cookie") is None


async def test_preview_link__expires(outside, sandbox_id, ticket):
    await end(outside)
    async with visitor(outside, sandbox_id, ticket) as browser:
        refused = await browser.get("/")
    assert refused.status_code == 401
    assert refused.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "links). Programs send an API key." in refused.text


async def test_preview_link__expiry_closes_an_open_websocket(outside, sandbox_id, ticket):
    async with await websocket(outside, sandbox_id, ticket) as socket:
        await socket.recv()
        await end(outside)
        with pytest.raises(ConnectionClosed):
            await socket.recv()


async def test_preview_link__revoking_its_key_closes_an_open_websocket(outside, sandbox_id):
    key_id, key = await outside.new_key()
    _, ticket = await make_link(outside, sandbox_id, key=key)
    async with await websocket(outside, sandbox_id, ticket) as socket:
        await socket.recv()
        await ApiKeys(outside.components.sessions, outside.components.authenticator).revoke(key_id)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    async with visitor(outside, sandbox_id, ticket) as browser:
        assert (await browser.get("/")).status_code == 401


async def websocket(outside, sandbox_id, ticket):
    return connect(
        f"ws://{outside.host_of(sandbox_id, PORT)}/",
        host="127.0.0.1",
        port=outside.port,
        additional_headers={"Cookie": f"sandbox-preview={ticket}"},
    )
