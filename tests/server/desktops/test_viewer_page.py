"""The page of a link to a desktop, in a real Chromium."""

import os
from pathlib import Path

import pytest
import pytest_asyncio

from tests.browser import WatchedPage, running_chromium
from tests.engine.polling import until

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

PICTURES = os.environ.get("DESKTOP_PICTURES")
# Errors of requests that the test makes fail, and of a connection that the server ends.
EXPECTED = ("net::ERR_", "WebSocket connection to", "401 (Unauthorized)", "getImageData")
BLUE = [32, 96, 160]


@pytest_asyncio.fixture(loop_scope="module")
async def tab():
    async with running_chromium() as browser:
        context = await browser.new_context(viewport={"width": 1100, "height": 800})
        yield WatchedPage(await context.new_page())


@pytest.fixture
def link_to(api):
    async def make(sandbox_id, **fields):
        made = await api.post(f"/v1/sandboxes/{sandbox_id}/desktop/links", json=fields)
        assert made.status_code == 201, made.text
        return made.json()

    return make


async def take_picture(page, name):
    if PICTURES:
        await page.screenshot(path=Path(PICTURES, f"{name}.png"))


async def colour(page):
    """Read a pixel of the desktop as the page shows it."""
    return await page.evaluate("""() => {
      const canvas = document.querySelector("#screen canvas");
      const pixel = canvas?.getContext("2d").getImageData(canvas.width - 2, 2, 1, 1).data;
      return pixel ? [...pixel.slice(0, 3)] : null;
    }""")


async def until_shown(page):
    async def is_shown():
        return await colour(page) == BLUE

    await until(is_shown, timeout=20)


async def test_desktop_page__a_person_watches_takes_control_clicks_types_and_hands_back(
    api, sandbox_id, link_to, tab, desktop_log
):
    page = tab.page
    link = await link_to(sandbox_id, mode="control", name="Ada")
    await page.goto(link["url"])
    await until_shown(page)
    await page.get_by_text("You are watching. The agent has control.").wait_for()
    await take_picture(page, "watching")
    await page.locator("#screen canvas").click(position={"x": 100, "y": 100})
    assert not [each for each in await desktop_log(sandbox_id) if "pointer" in each]

    await page.get_by_role("button", name="Take control").click()
    await page.get_by_text("You have control.").wait_for()
    await until_shown(page)

    async def has_clicked():
        await page.locator("#screen canvas").click(position={"x": 100, "y": 100})
        pressed = [each["pointer"] for each in await desktop_log(sandbox_id) if "pointer" in each]
        return any(buttons == 1 for buttons, _, _ in pressed)

    await until(has_clicked, timeout=30)
    await page.keyboard.press("a")

    async def has_typed():
        return {"key": [1, ord("a")]} in await desktop_log(sandbox_id)

    await until(has_typed)
    await page.get_by_role("button", name="Clipboard").click()
    await page.get_by_label("Text").fill("for the desktop")

    async def has_pasted():
        return {"clipboard": "for the desktop"} in await desktop_log(sandbox_id)

    await until(has_pasted)
    await page.get_by_role("button", name="Clipboard").click()
    await take_picture(page, "control")

    await page.get_by_role("button", name="Hand back").click()
    await page.get_by_text("You are watching.").wait_for()
    assert (await api.get(f"/v1/sandboxes/{sandbox_id}/desktop")).json()["control"][
        "holder"
    ] == "agent"
    await page.reload()  # the link can be opened again until it expires
    await until_shown(page)

    revoked = await api.delete(f"/v1/sandboxes/{sandbox_id}/desktop/links/{link['id']}")
    assert revoked.status_code == 204
    await page.get_by_role("alert").wait_for()
    await take_picture(page, "revoked")
    assert [each for each in tab.complaints if not any(part in each for part in EXPECTED)] == []


async def test_desktop_page__a_link_to_watch_offers_no_control_and_survives_a_pause(
    api, sandbox_id, link_to, tab
):
    page = tab.page
    link = await link_to(sandbox_id)
    await page.goto(link["url"] + "&bar=true")
    await until_shown(page)
    assert await page.get_by_role("button", name="Take control").count() == 0
    assert (await api.post(f"/v1/sandboxes/{sandbox_id}/pause")).status_code == 200
    await page.get_by_text("The sandbox is paused.").wait_for()
    assert (await api.post(f"/v1/sandboxes/{sandbox_id}/resume")).status_code == 200
    await page.get_by_text("You are watching.").wait_for()
    await until_shown(page)
