import io
import random

import httpx
import pytest
from PIL import Image, ImageChops

from tests.tools.desktop.event_window import opened_event_window
from tests.tools.desktop.rfb_viewer import RfbViewer


@pytest.fixture
async def _as_before(desktop):
    yield
    await desktop.client.put("/display", json={"width": 1024, "height": 768, "dpi": 96})


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize("size", [(1280, 800), (64, 64), (1921, 1081), (800, 1600)])
async def test_the_display_changes_its_size_while_it_runs(desktop, size):
    width, height = size
    answer = await desktop.client.put(
        "/display", json={"width": width, "height": height, "dpi": 120}
    )
    assert answer.json()["resolution"] == {"width": width, "height": height}
    assert answer.json()["dpi"] == 120
    picture = Image.open(io.BytesIO((await desktop.client.get("/screenshot")).content))
    assert picture.size == size
    assert await desktop.ask_x("xdotool", "getdisplaygeometry") == f"{width} {height}\n"
    assert await desktop.cursor() == (width // 2, height // 2)


@pytest.mark.usefixtures("_as_before")
async def test_twenty_sizes_in_a_row_each_hold_at_once(desktop):
    chosen = random.Random(20)
    sizes = [(chosen.randrange(64, 2000), chosen.randrange(64, 1400)) for _ in range(20)]
    for width, height in sizes:
        answer = await desktop.client.put("/display", json={"width": width, "height": height})
        assert answer.json()["resolution"] == {"width": width, "height": height}
        picture = Image.open(io.BytesIO((await desktop.client.get("/screenshot")).content))
        assert picture.size == (width, height)
        assert await desktop.cursor() == (width // 2, height // 2)


async def test_a_screenshot_has_the_pixels_that_viewers_get(desktop):
    async with opened_event_window(desktop.display), desktop.viewer("view") as socket:
        viewer = RfbViewer(socket)
        await viewer.shake_hands()
        await desktop.act("mouse_move", coordinate=[321, 234])
        screenshot = (await desktop.client.get("/screenshot")).content
        seen = await viewer.picture()
    taken = Image.open(io.BytesIO(screenshot)).convert("RGB")
    assert ImageChops.difference(taken, seen).getbbox() is None
    assert len(taken.getcolors(1 << 20) or []) > 1


@pytest.mark.parametrize(
    ("width", "height", "sentence"),
    [
        (1, 1, "The width is 1 pixels; it must be 64 to 8192 pixels."),
        (16384, 16384, "The width is 16384 pixels; it must be 64 to 8192 pixels."),
        (1024, 8193, "The height is 8193 pixels; it must be 64 to 8192 pixels."),
        (8192, 8192, "The display would have 67108864 pixels"),
        (-5, 10**30, "The width is -5 pixels"),
    ],
)
async def test_sizes_that_no_display_has_are_refused(desktop, width, height, sentence):
    answer = await desktop.client.put("/display", json={"width": width, "height": height})
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]
    state = (await desktop.client.get("/state")).json()
    assert state["resolution"] == {"width": 1024, "height": 768}


async def test_only_callers_with_the_token_are_served(desktop):
    async with httpx.AsyncClient(base_url=desktop.url) as stranger:
        assert (await stranger.get("/health")).json() == {"ready": True}
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": desktop.token}):
            assert (await stranger.get("/state", headers=headers)).status_code == 401
            act = await stranger.post("/actions", json={"action": "screenshot"}, headers=headers)
            assert act.status_code == 401


async def test_a_request_that_is_too_large_is_refused(desktop):
    answer = await desktop.client.post("/actions", content=b" " * (300 << 10))
    assert answer.status_code == 413
