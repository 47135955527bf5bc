"""The page of the live view, in a real browser that shows another one."""

import json

import pytest
import pytest_asyncio
from playwright.async_api import async_playwright, expect
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sandbox_server.http.assets import answer_page_file, find_page_file
from tests.chromium_process import listening_chromium
from tests.engine.polling import until
from tests.server.browsers.cdp.relay_server import RelayServer, relaying
from tests.server.browsers.cdp.test_relay import WAIT, ask, attached

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)
RED, BLUE = "rgb(200, 0, 0)", "rgb(0, 0, 200)"


def page_url(color, title):
    """Build a page whose color and title tell what has been typed and clicked."""
    return (
        f"data:text/html,<title>{title}</title><body style='margin:0;background:{color}'>"
        "<input id=i style='position:absolute;left:100px;top:100px;width:400px;height:100px' "
        "oninput='document.title=i.value'>"
        "<button style='position:absolute;left:100px;top:300px;width:400px;height:100px' "
        "onclick='document.title=`clicked`'>x</button>"
    )


class LiveServer(RelayServer):
    """Serves the page, and its WebSocket as that of the browser."""

    mode = "control"

    async def __call__(self, scope, receive, send):
        name = scope["path"].partition("/live")[2].removeprefix("/")
        if scope["path"].endswith("/devtools/browser"):
            self.only_watches = self.mode == "view"
            scope["raw_path"] = self.browser_path
        if "/devtools/" in scope["path"]:
            await super().__call__(scope, receive, send)
            return
        if name == "state":
            response: Response = JSONResponse({"mode": self.mode, "sandbox": "running"})
        else:
            file = find_page_file(name or "live.html")
            response = (
                Response(status_code=404)
                if file is None
                else answer_page_file(Request(scope), file)
            )
        await response(scope, receive, send)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def viewer():
    """Run the browser of the person."""
    async with async_playwright() as playwright, listening_chromium() as own:
        yield await playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{own.port}")


@pytest_asyncio.fixture(loop_scope="module")
async def chromium():
    """Run the browser that is shown."""
    async with listening_chromium() as chromium:
        yield chromium


@pytest_asyncio.fixture(loop_scope="module")
async def server(chromium):
    async with relaying(chromium.port, LiveServer) as server:
        server.browser_path = chromium.path.encode()
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def page(viewer, server):
    context = await viewer.new_context(viewport={"width": 1000, "height": 800})
    page = await context.new_page()
    page.set_default_timeout(WAIT_MS)
    problems: list[str] = []
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    await context.close()
    assert [each for each in problems if "WebSocket" not in each] == []


async def open_live(page, server):
    await page.goto(f"http://127.0.0.1:{server.port}/browser/token/live")


async def color_shown(page):
    """Read the color of the picture near its lower right corner."""
    return await page.evaluate(
        """() => {
            const picture = document.getElementById("picture");
            if (picture.hidden || !picture.naturalWidth) return null;
            const canvas = document.createElement("canvas");
            canvas.width = picture.naturalWidth;
            canvas.height = picture.naturalHeight;
            const context = canvas.getContext("2d");
            context.drawImage(picture, 0, 0);
            return [...context.getImageData(canvas.width - 5, canvas.height - 5, 1, 1).data];
        }"""
    )


async def wait_color(page, channel):
    async def is_shown():
        color = await color_shown(page)
        return color is not None and color[channel] > 150 and sum(color[:3]) < 300

    await until(is_shown, timeout=WAIT)


async def titles_of(socket):
    targets = (await ask(socket, "Target.getTargets"))["result"]["targetInfos"]
    return {each["title"] for each in targets if each["type"] == "page"}


async def wait_title(socket, title):
    async def is_there():
        return title in await titles_of(socket)

    await until(is_there, timeout=WAIT)


async def click_at(page, x, y):
    """Click where the shown page has these coordinates."""
    box = await page.locator("#picture").bounding_box()
    width = await page.evaluate("document.getElementById('picture').naturalWidth")
    scale = box["width"] / width
    await page.mouse.click(box["x"] + x * scale, box["y"] + y * scale)


async def test_live__follows_the_tab_of_the_driver_and_survives_a_reload(
    page, server, chromium, tmp_path
):
    async with attached(server, chromium) as driver:
        await open_live(page, server)
        await expect(page.locator(".tab")).to_have_count(1)
        await ask(driver, "Target.createTarget", url=page_url(RED, "First"))
        await wait_color(page, 0)
        second = await ask(driver, "Target.createTarget", url=page_url(BLUE, "Second"))
        await wait_color(page, 2)
        await expect(page.locator(".tab.shown")).to_contain_text("Second")
        await page.reload()
        await expect(page.locator(".tab")).to_have_count(3)
        await page.get_by_role("tab", name="First").click()
        await wait_color(page, 0)
        await page.screenshot(path=tmp_path / "live.png")
        await page.get_by_role("tab", name="Second").click()
        await wait_color(page, 2)
        await ask(driver, "Target.closeTarget", targetId=second["result"]["targetId"])
        await expect(page.locator(".tab")).to_have_count(2)
        await wait_color(page, 0)


async def test_live__a_person_clicks_types_and_navigates(page, server, chromium):
    async with attached(server, chromium) as driver:
        await ask(driver, "Target.createTarget", url=page_url(RED, "First"))
        await open_live(page, server)
        await page.get_by_role("tab", name="First").click()
        await wait_color(page, 0)
        await click_at(page, 300, 350)
        await wait_title(driver, "clicked")
        await click_at(page, 300, 150)
        await page.keyboard.type("hello")
        await wait_title(driver, "hello")
        await page.locator("#address").fill(page_url(BLUE, "Other"))
        await page.locator("#address").press("Enter")
        await wait_color(page, 2)
        await wait_title(driver, "Other")
        await page.locator("#new-tab").click()
        await expect(page.locator(".tab")).to_have_count(3)


async def test_live__a_link_for_watching_changes_nothing(page, server, chromium):
    async with attached(server, chromium) as driver:
        await ask(driver, "Target.createTarget", url=page_url(RED, "First"))
        server.mode = "view"
        await open_live(page, server)
        await page.get_by_role("tab", name="First").click()
        await wait_color(page, 0)
        await expect(page.locator("#status")).to_have_text("You are watching.")
        await expect(page.locator("#new-tab")).to_be_hidden()
        await click_at(page, 300, 350)
        await page.keyboard.type("hello")
        assert "First" in await titles_of(driver)


@pytest.mark.parametrize(
    "method",
    [
        "Input.dispatchKeyEvent",
        "Page.navigate",
        "Runtime.evaluate",
        "Target.createTarget",
        "Browser.close",
    ],
)
async def test_live__commands_of_watchers_are_refused(server, chromium, method):
    server.only_watches = True
    async with attached(server, chromium) as socket:
        refused = await ask(socket, method)
        assert refused["error"]["message"] == "This link is for watching only."
        await socket.send(json.dumps({"id": 2, "method": "Target.getTargets", "x": "y" * 300_000}))
        await socket.wait_closed()
    assert socket.close_code == 1009


async def test_live__a_watcher_cannot_hide_a_command_behind_another_name(server, chromium):
    server.only_watches = True
    async with attached(server, chromium) as socket:
        await socket.send('{"id":1,"method":"Page.navigate","method":"Target.getTargets"}')
        assert "targetInfos" in json.loads(await socket.recv())["result"]
        await socket.send('{"id":1,"method":"Target.getTargets","method":"Target.createTarget"}')
        assert "error" in json.loads(await socket.recv())


async def test_live__the_page_reconnects_after_its_connection_broke(page, server, chromium):
    await open_live(page, server)
    await expect(page.locator(".tab")).to_have_count(1)
    for relay in list(server.relays):
        relay._client.transport.abort()
    await expect(page.locator("#status")).to_have_text("Reconnecting …")
    await expect(page.locator("#status")).to_have_text("You can control the browser.")
    await expect(page.locator(".tab")).to_have_count(1)
