"""Drivers of sessions: what connects, leaves and closes. A recorder stands in for the browser."""

import json
from datetime import timedelta

import pytest
from sqlalchemy import select
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sandbox_server.browsers import drivers
from sandbox_server.db.models import BrowserDriver, BrowserSession
from sandbox_server.domain.computers import browsers
from sandbox_server.domain.service_ports import CDP_PORT
from tests.engine.polling import until
from tests.server.support.full_server import WAIT, inside
from tests.server.support.request_recorder import start_recorder

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("base_template"),
]


@pytest.fixture
def no_grace(monkeypatch):
    for module in (browsers, drivers):
        monkeypatch.setattr(module, "GRACE", timedelta())


@pytest.fixture
def row_of(outside):
    async def row_of(session_id):
        async with outside.components.sessions() as session:
            return await session.get_one(BrowserSession, session_id)

    return row_of


@pytest.fixture
def drivers_of(outside):
    async def drivers_of(session_id):
        own = select(BrowserDriver.id).where(BrowserDriver.session_id == session_id)
        async with outside.components.sessions() as session:
            return len((await session.scalars(own)).all())

    return drivers_of


@pytest.fixture
def begin(bb, outside, row_of):
    async def begin(**fields):
        made = await bb.sessions.create(**fields)
        sandbox = await inside(outside, (await row_of(made.id)).sandbox_id)
        await start_recorder(sandbox, CDP_PORT)
        return made

    return begin


def attached(url):
    return connect(url, open_timeout=WAIT)


async def ended(bb, session_id):
    async def is_over():
        return (await bb.sessions.retrieve(session_id)).status == "COMPLETED"

    await until(is_over, timeout=60)


async def test_driver__the_last_one_to_leave_ends_the_session(
    bb, begin, row_of, drivers_of, no_grace
):
    made = await begin()
    async with attached(made.connect_url) as one:
        await one.recv()
        async with attached(made.connect_url) as other:
            await other.recv()

            async def both_are_noted():
                return await drivers_of(made.id) == 2

            await until(both_are_noted, timeout=30)
            assert (await row_of(made.id)).connect_by is None

        async def one_is_left():
            return await drivers_of(made.id) == 1

        await until(one_is_left, timeout=30)
        assert (await row_of(made.id)).left_at is None
        assert (await bb.sessions.retrieve(made.id)).status == "RUNNING"
    await ended(bb, made.id)
    assert "last driver" in (await row_of(made.id)).state_reason


async def test_driver__a_session_that_is_kept_alive_outlives_it(bb, begin, row_of, no_grace):
    made = await begin(keep_alive=True)
    async with attached(made.connect_url) as driver:
        await driver.recv()
        await driver.send(json.dumps({"id": 1, "method": "Browser.close"}))

    async def is_left():
        return (await row_of(made.id)).left_at is not None

    await until(is_left, timeout=30)
    assert (await bb.sessions.retrieve(made.id)).status == "RUNNING"
    async with attached(made.connect_url) as again:
        await again.recv()
    await bb.sessions.update(made.id, status="REQUEST_RELEASE")


async def test_driver__closing_the_browser_ends_the_session(bb, begin, row_of):
    made = await begin()
    async with attached(made.connect_url) as driver:
        await driver.recv()
        await driver.send(json.dumps({"id": 1, "method": "Browser.close"}))
        await ended(bb, made.id)
    assert "closed the browser" in (await row_of(made.id)).state_reason


async def test_driver__connects_to_a_session_by_the_api_key(bb, begin, outside):
    made = await begin(keep_alive=True)
    url = f"ws://{outside.host}/browserbase/connect?apiKey={outside.key}&sessionId={made.id}"
    async with attached(url) as driver:
        assert "apiKey" not in str(await driver.recv())
    await bb.sessions.update(made.id, status="REQUEST_RELEASE")
    with pytest.raises(InvalidStatus) as refused:
        await attached(url)
    assert refused.value.response.status_code in {409, 410}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("apiKey=sk_wrong", 401),
        ("", 401),
        ("apiKey=KEY&sessionId=01900000-0000-7000-8000-000000000000", 404),
        ("apiKey=KEY&sessionId=x", 404),
        ("apiKey=KEY&enableProxy=true", 400),
        ("apiKey=KEY", 502),  # nothing listens in sandboxes of the base template
    ],
)
async def test_connect__what_cannot_work_is_refused(bb, outside, query, status):
    url = f"ws://{outside.host}/browserbase/connect?{query.replace('KEY', outside.key)}"
    with pytest.raises(InvalidStatus) as refused:
        await attached(url)
    response = refused.value.response
    assert (response.status_code, json.loads(response.body)["statusCode"]) == (status, status)
    assert not await bb.sessions.list(status="RUNNING")


async def test_viewer__does_not_keep_a_session(bb, begin, row_of):
    made = await begin()
    urls = await bb.sessions.debug(made.id)
    async with attached(urls.ws_url) as viewer:
        await viewer.recv()
        assert (await row_of(made.id)).connect_by is not None
    assert (await row_of(made.id)).driven_at is None
    await bb.sessions.update(made.id, status="REQUEST_RELEASE")


async def test_driver__of_a_stopping_server_may_come_back(bb, begin, outside, row_of, drivers_of):
    made = await begin()
    async with attached(made.connect_url) as driver:
        await driver.recv()

        async def is_noted():
            return await drivers_of(made.id) == 1

        await until(is_noted, timeout=30)
        outside.components.session_drivers.stop()
    outside.components.session_drivers._is_stopping = False
    assert (await row_of(made.id)).left_at is None
    assert await drivers_of(made.id) == 1
    await bb.sessions.update(made.id, status="REQUEST_RELEASE")


async def test_driver__its_messages_are_logged_and_readable_after_the_end(bb, begin, outside):
    made = await begin()
    silent = await begin(browser_settings={"log_session": False})
    for each in (made, silent):
        async with attached(each.connect_url) as driver:
            await driver.recv()
            await driver.send(
                json.dumps({"id": 5, "method": "Page.navigate", "params": {"url": "x"}})
            )
            await driver.recv()
        await bb.sessions.update(each.id, status="REQUEST_RELEASE")

    async def is_logged():
        return any(each.method == "Page.navigate" for each in await bb.sessions.logs.list(made.id))

    await until(is_logged, timeout=30)
    [entry] = [
        each for each in await bb.sessions.logs.list(made.id) if each.method == "Page.navigate"
    ]
    assert entry.request is not None
    assert (entry.request.params, entry.page_id) == ({"url": "x"}, 0)
    assert await bb.sessions.logs.list(silent.id) == []
    async with outside.api() as api:
        assert (await api.get(f"/v1/browsers/{made.id}/logs")).json()["items"] == []
        frame = await api.get(f"/v1/browsers/{made.id}/recordings/0/frame", params={"at_s": 0})
        assert (frame.status_code, frame.json()["code"]) == (404, "browser-recording-not-found")
