"""Links to a desktop: what their ticket allows, and what a viewer's connection does."""

import asyncio
import resource
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.engine.polling import until
from tests.server.support.full_server import WAIT

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

INIT = [b"RFB 003.008\n", b"\x01", b"\x01"]
POINTER = b"\x05\x01\x00\x0a\x00\x14"


def path(sandbox_id, rest=""):
    return f"/v1/sandboxes/{sandbox_id}/desktop{rest}"


class Visitor:
    """Someone with a link and without an API key."""

    def __init__(self, outside, link):
        url = urlsplit(link["url"])
        self.outside = outside
        self.id = link["id"]
        self.path = url.path
        self.ticket = parse_qs(url.query)["ticket"][0]

    async def ask(self, method, rest="", **options):
        async with self.outside.api() as api:
            del api.headers["X-API-Key"]
            params = {"ticket": self.ticket}
            return await api.request(method, self.path + rest, params=params, **options)

    async def take(self, holder="person"):
        return await self.ask("POST", "/control", json={"holder": holder})

    def connect(self, mode="view", **options):
        return connect(
            f"ws://127.0.0.1:{self.outside.port}{self.path}/vnc?mode={mode}&ticket={self.ticket}",
            open_timeout=WAIT,
            max_size=None,
            **options,
        )


async def start(socket):
    """Do a viewer's part of the handshake."""
    for each in INIT:
        await socket.recv()
        await socket.send(each)
    await socket.recv()


def resident_bytes():
    """Return the memory of this process, which the server runs in."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def read_on(socket):
    async with asyncio.timeout(WAIT):
        while True:
            await socket.recv()


async def until_closed(socket):
    with pytest.raises(ConnectionClosed):
        await read_on(socket)


@pytest.fixture
def visit(api, outside):
    async def make(sandbox_id, **fields):
        made = await api.post(path(sandbox_id, "/links"), json={"ttl_s": 60, **fields})
        assert made.status_code == 201, made.text
        return Visitor(outside, made.json())

    return make


async def test_desktop_link__shows_the_page_and_nothing_else(api, outside, sandbox_id, visit):
    visitor = await visit(sandbox_id, name="Ada")
    page = await visitor.ask("GET")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "frame-ancestors 'self'" in page.headers["content-security-policy"]
    assert (await visitor.ask("GET", "/state")).json()["mode"] == "view"
    assert outside.key not in visitor.ticket
    async with outside.api() as stranger:
        del stranger.headers["X-API-Key"]
        params = {"ticket": visitor.ticket}
        for elsewhere in (f"/v1/sandboxes/{sandbox_id}", path(sandbox_id), "/v1/events"):
            assert (await stranger.get(elsewhere, params=params)).status_code == 403
        unknown = {"ticket": f"sbt_{'a' * 43}"}
        assert (await stranger.get(visitor.path, params=unknown)).status_code == 401
        assert (await stranger.get(visitor.path)).status_code == 401
    assert (await api.get(visitor.path)).status_code == 403  # an API key opens no page
    assert (await visitor.take()).status_code == 403


async def test_desktop_link__is_for_one_sandbox(api, make_sandbox, visit):
    first, second = await make_sandbox(), await make_sandbox()
    visitor = await visit(first, mode="control")
    visitor.path = visitor.path.replace(first, second)
    assert (await visitor.ask("GET", "/state")).status_code == 403
    assert (await visitor.take()).status_code == 403


async def test_desktop_link__an_expired_link_shows_people_a_page_that_says_so(sandbox_id, visit):
    visitor = await visit(sandbox_id, ttl_s=1)

    headers = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate"}

    async def is_over():
        return (await visitor.ask("GET", headers=headers)).status_code == 401

    await until(is_over)
    page = await visitor.ask("GET", headers=headers)
    assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "expired" in page.text


async def test_desktop_viewer__watches_without_input_and_a_revoked_link_disconnects_it(
    api, sandbox_id, visit, desktop_log
):
    visitor = await visit(sandbox_id)
    async with visitor.connect() as socket:
        await start(socket)
        await socket.send(POINTER)
        assert (await api.get(path(sandbox_id))).json()["viewers"] == 1
        listed = (await api.get(path(sandbox_id, "/links"))).json()["items"]
        assert [each["id"] for each in listed] == [visitor.id]
        assert "url" not in listed[0]
        revoked = await api.delete(path(sandbox_id, f"/links/{visitor.id}"))
        assert revoked.status_code == 204, revoked.text
        await until_closed(socket)
    assert not [each for each in await desktop_log(sandbox_id) if "pointer" in each]
    again = await api.delete(path(sandbox_id, f"/links/{visitor.id}"))
    assert (again.status_code, again.json()["code"]) == (404, "desktop-link-not-found")


async def test_desktop_viewer__takes_over_and_hands_back_with_both_in_the_timeline(
    api, sandbox_id, visit, desktop_log, events_of
):
    visitor = await visit(sandbox_id, mode="control", name="Ada")
    with pytest.raises(InvalidStatus) as refused:
        async with visitor.connect("control"):
            pass
    assert refused.value.response.status_code == 403  # the agent has control
    taken = (await visitor.take()).json()
    assert (taken["holder"], taken["is_mine"], taken["name"]) == ("person", True, "Ada")
    other = await visit(sandbox_id, mode="control")
    assert (await other.take()).status_code == 409
    assert (await other.take("agent")).status_code == 409
    async with visitor.connect("control") as socket:
        await start(socket)
        await socket.send(POINTER)

        async def has_arrived():
            return {"pointer": [1, 10, 20]} in await desktop_log(sandbox_id)

        await until(has_arrived)
        action = {"action": "left_click", "coordinate": [1, 1]}
        refused = await api.post(path(sandbox_id, "/actions"), json=action)
        assert refused.status_code == 409
        assert "Ada" in refused.json()["detail"]
        assert (await visitor.take("agent")).json()["holder"] == "agent"
        await until_closed(socket)
    assert (await api.post(path(sandbox_id, "/actions"), json=action)).status_code == 200
    events = await events_of(sandbox_id)
    assert [each["type"] for each in events] == [
        "desktop.control_taken",
        "desktop.control_returned",
        "desktop.action",
    ]
    assert [each["actor"]["kind"] for each in events] == ["visitor", "visitor", "key"]
    assert events[0]["actor"]["id"] == visitor.id
    assert events[0]["data"]["name"] == "Ada"


async def test_desktop_viewer__is_disconnected_when_its_link_expires(api, sandbox_id, visit):
    visitor = await visit(sandbox_id, mode="control", ttl_s=4)
    watcher = await visit(sandbox_id, ttl_s=4)
    await visitor.take()
    async with visitor.connect("control") as socket, watcher.connect() as watching:
        await start(socket)
        await start(watching)
        await until_closed(socket)
        await until_closed(watching)
    with pytest.raises(InvalidStatus) as refused:
        async with visitor.connect():
            pass
    assert refused.value.response.status_code == 401
    assert (await visitor.take()).status_code == 401

    async def is_returned():
        return (await api.get(path(sandbox_id))).json()["control"]["holder"] == "agent"

    await until(is_returned, timeout=30)


async def test_desktop_viewer__control_ends_some_time_after_the_page_was_left(
    api, sandbox_id, visit, events_of
):
    visitor = await visit(sandbox_id, mode="control", ttl_s=600)
    await visitor.take()
    async with visitor.connect("control") as socket:
        await start(socket)
        first = (await api.get(path(sandbox_id))).json()["control"]["until"]

        async def is_prolonged():
            control = (await api.get(path(sandbox_id))).json()["control"]
            return control["holder"] == "person" and control["until"] > first

        await until(is_prolonged)

    async def is_returned():
        return [each["cause"] for each in await events_of(sandbox_id)] == ["request", "expiry"]

    await until(is_returned, timeout=30)


async def test_desktop_viewer__one_that_reads_nothing_holds_up_nobody(api, sandbox_id, visit):
    big = {"resolution": {"width": 4096, "height": 4096}}
    assert (await api.patch(path(sandbox_id), json=big)).status_code == 200
    visitor = await visit(sandbox_id)
    before = resident_bytes()
    async with visitor.connect(max_queue=1) as socket:
        await start(socket)
        for _ in range(20):  # each is answered by 64 MiB
            await socket.send(b"\x03\x00\x00\x00\x00\x00\x10\x00\x10\x00")
        async with asyncio.timeout(WAIT):
            answer = await api.post(
                path(sandbox_id, "/actions"), json={"action": "mouse_move", "coordinate": [9, 9]}
            )
        assert answer.status_code == 200
        assert resident_bytes() - before < 128 * 2**20  # 1280 MiB are asked for
        socket.transport.abort()


async def test_desktop_link__is_refused_while_streaming_is_off(api, sandbox_id, visit):
    visitor = await visit(sandbox_id)
    async with visitor.connect() as socket:
        await start(socket)
        assert (await api.patch(path(sandbox_id), json={"stream": False})).status_code == 200
        await until_closed(socket)
    refused = await api.post(path(sandbox_id, "/links"), json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "desktop-not-streamed")
