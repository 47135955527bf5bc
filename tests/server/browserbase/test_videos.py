"""Videos of sessions: by Browserbase's client, by their links without a key, and for whom they are not."""

from io import BytesIO

import httpx
import pytest
import pytest_asyncio
from browserbase import NotFoundError
from PIL import Image

from sandbox_server.browsers.records.frames import Frame, pack_frames
from sandbox_server.browsers.records.store import RecordKind

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("base_template"),
]

BEGIN_MS = 1_790_000_000_000


def picture(color):
    content = BytesIO()
    Image.new("RGB", (64, 48), color).save(content, "JPEG")
    return content.getvalue()


@pytest_asyncio.fixture(loop_scope="module")
async def session_id(bb, outside):
    """Have a session with three seconds of pictures that has ended."""
    made = await bb.sessions.create()
    frames = [
        Frame(BEGIN_MS + second * 1000, picture(color))
        for second, color in enumerate(("red", "blue", "red"))
    ]
    recordings = outside.components.session_recordings
    await recordings._store.append(
        made.id,
        RecordKind.FRAMES,
        pack_frames("http://a.test/", frames),
        first_ms=frames[0].at_ms,
        last_ms=frames[-1].at_ms,
        page=0,
    )
    await bb.sessions.update(made.id, status="REQUEST_RELEASE")
    return made.id


async def test_videos__each_page_is_downloaded_by_a_link_that_needs_no_key(bb, session_id):
    [asked] = (await bb.sessions.recording.downloads.create(session_id)).downloads
    [found] = (await bb.sessions.recording.downloads.list(session_id)).downloads
    assert (asked.page_id, asked.status, found.status) == ("0", "COMPLETED", "COMPLETED")
    async with httpx.AsyncClient(timeout=60) as stranger:
        video = await stranger.get(found.download_url)
    assert (video.status_code, video.headers["content-type"]) == (200, "video/mp4")
    assert video.content[4:8] == b"ftyp"


async def test_videos__a_replay_is_a_playlist_with_its_segment(bb, session_id):
    answer = await bb.sessions.replays.retrieve_page("0", id=session_id)
    lines = (await answer.text()).splitlines()
    assert lines[0] == "#EXTM3U"
    assert "#EXTINF:3.000," in lines
    [url] = [line for line in lines if not line.startswith("#")]
    async with httpx.AsyncClient(timeout=60) as stranger:
        segment = await stranger.get(url)
    assert (segment.status_code, segment.content[:1]) == (200, b"G")  # the sync byte of MPEG-TS
    with pytest.raises(NotFoundError):
        await bb.sessions.replays.retrieve_page("7", id=session_id)


async def test_videos__the_api_has_them_for_keys_that_may_see_screens(outside, session_id):
    path = f"/v1/browsers/{session_id}/recordings/0"
    async with outside.api() as api:
        made = await api.post("/v1/keys", json={"scopes": ["read"]})
        video = await api.get(path, timeout=60)
        refused = await api.get(path, headers={"X-API-Key": made.json()["secret"]})
        missing = await api.get(path[:-1] + "5")
    assert video.content[4:8] == b"ftyp"
    assert (refused.status_code, missing.status_code) == (403, 404)


async def test_videos__their_links_reach_no_browser_and_links_to_browsers_no_videos(
    bb, outside, session_id
):
    [found] = (await bb.sessions.recording.downloads.list(session_id)).downloads
    base = found.download_url.partition("/recordings/")[0]
    running = await bb.sessions.create()
    drive = running.selenium_remote_url.removesuffix("/webdriver")
    async with httpx.AsyncClient() as stranger:
        assert (await stranger.get(f"{base}/json/version")).status_code == 403
        assert (await stranger.get(f"{drive}/recordings/0.mp4")).status_code == 404
        assert (await stranger.get(f"{base}x/recordings/0.mp4")).status_code == 401
    await bb.sessions.update(running.id, status="REQUEST_RELEASE")
