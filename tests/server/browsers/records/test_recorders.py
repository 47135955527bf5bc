"""Recording of sessions with a real browser, whose pages a driver uses meanwhile."""

import pytest

from sandbox_server.browsers.records import recorders, session_recorder
from sandbox_server.browsers.records.frames import unpack_frames, unpack_url
from sandbox_server.browsers.records.recorders import SessionRecorders
from sandbox_server.browsers.records.session_logs import EntryPosition, SessionLogs
from sandbox_server.browsers.records.store import RecordKind
from sandbox_server.browsers.repository import BrowserSessionRepository
from sandbox_server.db.models import BrowserSession
from sandbox_server.domain.computers.browsers import SessionState
from tests.engine.polling import until
from tests.tools.browser.site import running_site

PAGE = """<title>A page</title><body style="background: red"><script>
    console.warn("careful", 7); setTimeout(() => { throw new Error("broken") });
    fetch("/missing");
    setInterval(() => document.body.style.background = `rgb(${Date.now() % 255}, 0, 0)`, 20);
</script>"""


@pytest.fixture
def site():
    with running_site() as site:
        yield site


@pytest.fixture
async def recording(sessions, store, connector, row, monkeypatch):
    monkeypatch.setattr(session_recorder, "FLUSH_EVERY", recorders._PAUSE / 10)
    recording = SessionRecorders(sessions, store, connector)
    recording.begin(row)
    yield recording
    await recording._stop()


@pytest.fixture
def entries_of(store, row):
    async def entries_of(kind=None):
        found = await SessionLogs(store).list_entries(
            row, kind=kind, after=EntryPosition(), limit=1000
        )
        return [entry for _, entry in found]

    return entries_of


async def test_recorder__logs_console_network_and_errors(recording, site, page, entries_of):
    async def is_attached():
        return bool(await entries_of())

    await page.goto(site.serve("/first", "<title>First</title>"))
    await until(is_attached, timeout=30)
    site.serve("/missing", "no", status=404)
    await page.goto(site.serve("/page", PAGE))

    async def all_is_there():
        texts = [(each.kind, each.text) for each in await entries_of()]
        statuses = {each.status for each in await entries_of("network")}
        return (
            ("console", "careful 7") in texts
            and any(kind == "error" and "broken" in text for kind, text in texts)
            and {200, 404} <= statuses
        )

    await until(all_is_there, timeout=30)
    entries = await entries_of()
    [document] = [each for each in entries if each.url == site.url + "/page" and each.method]
    assert (document.status, document.resource_type, document.page) == (200, "Document", 0)
    missing = await entries_of("network")
    assert (404, "GET") in {(each.status, each.method) for each in missing}
    assert {each.kind for each in missing} == {"network"}


async def test_recorder__keeps_pictures_of_each_page_at_no_more_than_five_a_second(
    recording, site, page, store, row
):
    await page.goto(site.serve("/page", PAGE))
    other = await page.context.new_page()
    await other.goto(site.serve("/other", "<title>Other</title><h1>Other</h1>"))

    async def both_are_seen():
        return {each.page for each in await store.list_spans(row.id)} == {0, 1}

    await until(both_are_seen, timeout=30)
    await page.bring_to_front()

    async def there_are_some():
        parts = await store.list_after(row.id, RecordKind.FRAMES, page=0)
        return sum(len(unpack_frames(each.content)) for each in parts) > 5

    await until(there_are_some, timeout=30)
    parts = await store.list_after(row.id, RecordKind.FRAMES, page=0)
    frames = [frame for part in parts for frame in unpack_frames(part.content)]
    assert all(frame.picture.startswith(b"\xff\xd8") for frame in frames)
    gaps = [
        later.at_ms - frame.at_ms
        for part in parts
        for frame, later in zip(
            unpack_frames(part.content), unpack_frames(part.content)[1:], strict=False
        )
    ]
    assert all(gap >= 200 for gap in gaps)
    assert unpack_url(parts[-1].content) == site.url + "/page"


async def test_recorder__one_server_records_and_another_takes_over(
    sessions, store, connector, row, recording
):
    async def holder():
        async with sessions() as session:
            return (await session.get_one(BrowserSession, row.id)).recorder_id

    async def is_held():
        return await holder() is not None

    await until(is_held, timeout=30)
    first = await holder()
    other = SessionRecorders(sessions, store, connector)
    assert await other._take_turn(row.id) is recorders._Turn.OTHER
    await recording._stop()
    assert await holder() is None
    assert await other._take_turn(row.id) is recorders._Turn.OWN
    assert await holder() not in {None, first}


async def test_recorder__ends_with_the_session_when_the_browser_is_killed(
    sessions, row, chromium, page, recording
):
    assert recording._followers
    async with sessions.begin() as session:
        locked, now = await BrowserSessionRepository(session).lock(row.id)
        locked.state, locked.ended_at = SessionState.ERROR, now
    chromium.process.kill()

    async def is_over():
        return not recording._followers

    await until(is_over, timeout=30)
