import asyncio
import io

import pytest
from PIL import Image

from tests.tools.desktop.desktop_process import started_desktop
from tests.tools.desktop.event_window import opened_event_window


@pytest.fixture(autouse=True)
async def _no_recording(desktop):
    yield
    await desktop.client.delete("/recordings/current")
    for recording in (await desktop.client.get("/recordings")).json():
        await desktop.client.delete(f"/recordings/{recording['id']}")


async def record(desktop, **options):
    answer = await desktop.client.post("/recordings", json=options)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def runs(desktop):
    return (await desktop.client.get("/state")).json()["recording"] is not None


async def stop(desktop):
    answer = await desktop.client.delete("/recordings/current")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_recording_is_a_film_of_the_display_with_frames_by_time(desktop):
    started = await record(desktop, fps=10)
    began = asyncio.get_running_loop().time()
    state = (await desktop.client.get("/state")).json()
    assert state["recording"] == {
        "id": started["id"],
        "fps": 10,
        "started_at": started["started_at"],
    }
    await asyncio.sleep(1)
    async with opened_event_window(desktop.display):  # a white window over everything
        await asyncio.sleep(1)
        await desktop.act("mouse_move", coordinate=[5, 5])
    ended = await stop(desktop)
    lasted = asyncio.get_running_loop().time() - began
    assert abs(ended["duration_s"] - lasted) < 1
    assert (ended["width"], ended["height"], ended["end_reason"]) == (1024, 768, "stopped")
    [listed] = (await desktop.client.get("/recordings")).json()
    assert listed == ended

    url = f"/recordings/{started['id']}"
    film = await desktop.client.get(url)
    assert film.headers["content-type"] == "video/mp4"
    assert len(film.content) == ended["bytes"]
    part = await desktop.client.get(url, headers={"Range": "bytes=4-7"})
    assert (part.status_code, part.content) == (206, b"ftyp")

    async def frame(at_s):
        answer = await desktop.client.get(f"{url}/frames", params={"at_s": at_s})
        assert answer.status_code == 200, answer.text
        image = Image.open(io.BytesIO(answer.content))
        assert image.size == (1024, 768)
        return image.convert("L").resize((1, 1)).getpixel((0, 0))

    dark, white = await frame(0.2), await frame(ended["duration_s"] - 0.3)
    assert white > 230
    assert dark < 200


async def test_a_recording_survives_a_change_of_the_size(desktop):
    await record(desktop)
    await desktop.client.put("/display", json={"width": 640, "height": 900})
    await asyncio.sleep(0.5)
    await desktop.client.put("/display", json={"width": 1024, "height": 768})
    ended = await stop(desktop)
    assert (ended["width"], ended["height"]) == (1024, 768)
    assert ended["duration_s"] > 0.4


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("DELETE", "/recordings/current", 409, "No recording runs."),
        ("GET", "/recordings/rec_0000000000000000", 404, "There is no recording"),
        ("GET", "/recordings/..%2f..%2ftools", 404, ""),
        ("DELETE", "/recordings/rec_0000000000000000", 404, "There is no recording"),
        ("GET", "/recordings/x/frames?at_s=-1", 422, "at_s is the second"),
        ("GET", "/recordings/x/frames?at_s=nan", 422, "at_s is the second"),
        ("GET", "/recordings/x/frames", 422, "at_s is the second"),
    ],
)
async def test_wrong_requests_are_refused_with_a_sentence(desktop, method, path, status, sentence):
    answer = await desktop.client.request(method, path)
    assert answer.status_code == status
    assert sentence in answer.text


async def test_only_one_recording_runs_at_a_time_and_has_its_frames_only(desktop):
    started = await record(desktop)
    second = await desktop.client.post("/recordings", json={})
    assert (second.status_code, second.json()["detail"]) == (
        409,
        "A recording runs already. Stop it first.",
    )
    await stop(desktop)
    beyond = await desktop.client.get(f"/recordings/{started['id']}/frames?at_s=3600")
    assert beyond.status_code == 404
    assert "has no picture at 3600 s" in beyond.json()["detail"]
    assert (await desktop.client.post("/recordings", json={"fps": 31})).status_code == 422


async def test_a_recording_ends_at_its_largest_size_and_is_finished_after_a_crash(tmp_path):
    options = ("--most-recorded", "1")
    async with started_desktop(tmp_path, *options) as process, process.connected() as desktop:
        await record(desktop)
        async with asyncio.timeout(30):
            while await runs(desktop):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
        assert (await stop(desktop))["end_reason"] == "the recording has its largest size"
    recordings = tmp_path / ".local/state/sandbox-desktop/recordings"
    [description] = recordings.glob("*.json")
    next(recordings.glob("*.mp4")).unlink()
    description.write_text(
        description.read_text().replace("the recording has its largest size", "not finished")
    )
    async with started_desktop(tmp_path) as process, process.connected() as desktop:
        [recording] = (await desktop.client.get("/recordings")).json()
    assert recording["end_reason"] == "the desktop service ended"


async def test_a_recording_grows_by_fragments_that_stay_as_they_are(desktop):
    url = f"/recordings/{(await record(desktop, fps=10))['id']}/fragments"
    [running] = (await desktop.client.get("/recordings?current")).json()
    assert running["end_reason"] == "not finished"

    async def grown(more_than):
        async with asyncio.timeout(30):
            while len(found := (await desktop.client.get(url)).content) <= more_than:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.1)
        return found

    first = await grown(0)
    second = await grown(len(first))
    assert second.startswith(first)
    assert (await desktop.client.get(f"{url}?offset={len(first)}")).content.startswith(
        second[len(first) :]
    )
    await stop(desktop)
    ended = (await desktop.client.get(url)).content
    assert ended.startswith(second)
    assert ended[4:8] == b"ftyp"
    assert (await desktop.client.get(f"{url}?offset=-1")).status_code == 422
    missing = await desktop.client.get("/recordings/rec_0000000000000000/fragments")
    assert missing.status_code == 404
