"""Desktops over the API, in sandboxes of the template, and the page of a link in a real Chromium."""

import asyncio
import base64
import io

import pytest
from PIL import Image

from tests.browser import running_chromium
from tests.engine.polling import until
from tests.server.support.server_process import server_process
from tests.template.served import served_sandbox

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

SIZE = {"width": 1280, "height": 720}


@pytest.fixture(scope="module")
def sandbox(with_desktop, options):
    variables = {f"E2B_{name.upper()}": value for name, value in options.items()}
    with server_process(variables=variables) as server:
        server.start()
        wanted = {"desktop": {"resolution": SIZE, "recording": {"fps": 5}}, "timeout_s": 3600}
        with served_sandbox(server, template=with_desktop, **wanted) as sandbox:
            yield sandbox


@pytest.fixture
def act(sandbox):
    def act(action, **fields):
        return sandbox.ask("POST", "/desktop/actions", json={"action": action, **fields}).json()

    return act


def image_of(done):
    return Image.open(io.BytesIO(base64.b64decode(done["screenshot"])))


def test_desktop__the_settings_of_the_create_request_hold_at_once(sandbox, act):
    state = sandbox.ask("GET", "/desktop").json()
    assert state["resolution"] == SIZE
    assert image_of(act("screenshot", screenshot=True)).size == (1280, 720)
    assert act("mouse_move", coordinate=[300, 200])["cursor"] == [300, 200]


def test_desktop__a_program_gets_clicks_and_text(sandbox, act):
    terminal = "DISPLAY=:0 setsid xfce4-terminal --working-directory=/tmp >/dev/null 2>&1 &"
    sandbox.run(terminal)
    sandbox.wait("DISPLAY=:0 xdotool getwindowfocus getwindowname | grep -q Terminal")
    act("type", text="echo typed >typed.txt\n")
    sandbox.wait("[ -s /tmp/typed.txt ]")


def test_desktop__settings_hold_after_a_pause(sandbox, act):
    larger = {"width": 1600, "height": 900}
    sandbox.ask("PATCH", "/desktop", json={"resolution": larger})
    sandbox.ask("POST", "/pause")
    assert image_of(act("screenshot", screenshot=True)).size == (1600, 900)
    sandbox.ask("PATCH", "/desktop", json={"resolution": SIZE})


async def test_desktop__a_person_takes_over_on_the_page_and_hands_back(sandbox, act, pictures):
    link = sandbox.ask("POST", "/desktop/links", json={"mode": "control", "name": "Ada"}).json()
    async with running_chromium() as browser:
        page = await (await browser.new_context(viewport={"width": 1280, "height": 720})).new_page()
        await page.goto(link["url"])
        await page.get_by_text("You are watching. The agent has control.").wait_for()

        async def is_shown():
            colours = (
                Image.open(io.BytesIO(await page.screenshot())).convert("RGB").getcolors(1 << 20)
            )
            return colours is not None and len(colours) > 50

        await until(is_shown, timeout=30, pause=0.2)
        await page.screenshot(path=pictures / "desktop-watching.png")
        await page.get_by_role("button", name="Take control").click()
        await page.get_by_text("You have control.").wait_for()
        await asyncio.to_thread(_require_refusal, sandbox)
        await asyncio.to_thread(
            sandbox.run, "DISPLAY=:0 xdotool search --class xfce4-terminal windowactivate; true"
        )
        await page.locator("#screen canvas").focus()
        await page.keyboard.type("echo person >person.txt\n", delay=30)
        await asyncio.to_thread(sandbox.wait, "[ -s /tmp/person.txt ]")
        await page.screenshot(path=pictures / "desktop-control.png")
        await page.get_by_role("button", name="Hand back").click()
        await page.get_by_text("You are watching.").wait_for()
    assert (await asyncio.to_thread(act, "mouse_move", coordinate=[10, 10]))["cursor"] == [10, 10]
    events = sandbox.ask("GET", "/events", params={"type": "desktop."}).json()["items"]
    changes = [each["type"] for each in events if each["type"].startswith("desktop.control")]
    assert changes == ["desktop.control_taken", "desktop.control_returned"]


def _require_refusal(sandbox):
    with pytest.raises(AssertionError, match="desktop-controlled"):
        sandbox.ask("POST", "/desktop/actions", json={"action": "left_click", "coordinate": [5, 5]})


def test_desktop__the_recording_of_the_create_request_is_a_video(sandbox):
    sandbox.ask("DELETE", "/desktop/recordings/current")
    made = sandbox.ask("GET", "/desktop/recordings").json()["items"]
    assert made, "no recording"
    video = sandbox.ask("GET", f"/desktop/recordings/{made[-1]['id']}").content
    assert video[4:8] == b"ftyp"
    frame = sandbox.ask(
        "GET", f"/desktop/recordings/{made[-1]['id']}/frame", params={"at_s": 0.5}
    ).content
    assert Image.open(io.BytesIO(frame)).format == "JPEG"
