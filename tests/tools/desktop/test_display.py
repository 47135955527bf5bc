import io

import httpx
import pytest
from PIL import Image


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
