"""The template `browser` as its users have it: by the URLs that the server tells of it."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest
from playwright.async_api import Error, async_playwright

from sandbox_tools.forwarder.server import CONTROL_PORT
from tests.browser import running_chromium
from tests.engine.polling import until
from tests.server.support.server_process import server_process
from tests.template.conftest import build
from tests.template.served import served_sandbox

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

SITE = 8000
HEADING = "<title>A page</title><h1 style='font-size: 80px'>Shown from the sandbox</h1>"
LONG = 120


@pytest.fixture(scope="session")
def warm(options):
    """Build the template `browser`."""
    return build("browser", options)


@pytest.fixture(scope="session")
def warm_server(warm, options):
    """Run a server whose provider is the engine that has built the template."""
    variables = {f"E2B_{name.upper()}": value for name, value in options.items()}
    with server_process(variables=variables) as server:
        server.start()
        yield server


@pytest.fixture
def sandbox(warm_server, warm):
    """Create a sandbox with a site of its own."""
    with served_sandbox(warm_server, template=warm, timeout_s=3600) as sandbox:
        sandbox.write("/home/user/site/index.html", HEADING)
        sandbox.write("/home/user/site/report.txt", "done")
        site = f"python3 -m http.server -d /home/user/site {SITE}"
        sandbox.run(f"tmux -L site new-session -d '{site}'")
        sandbox.wait(f"curl --silent --fail localhost:{SITE}")
        yield sandbox


@asynccontextmanager
async def driven(sandbox):
    """Connect playwright to the browser of the sandbox."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(sandbox.told["cdp_url"])
        yield browser.contexts[0]
        await browser.close()


def configure(sandbox, **config):
    """Tell the forwarder its upstreams and hosts."""
    sandbox.write("/tmp/config.json", json.dumps(config))
    sandbox.run(
        "curl --silent --fail -X PUT --data @/tmp/config.json "
        '-H "Authorization: Bearer $(sandbox-tools setting token)" '
        f"http://127.0.0.1:{CONTROL_PORT}/config"
    )


async def test_browser__playwright_finds_one_blank_page_and_what_was_left_by_others(sandbox):
    async with driven(sandbox) as context:
        [page] = context.pages
        assert page.url == "about:blank"
        await page.goto(f"http://localhost:{SITE}/")
        assert await page.title() == "A page"
        assert "Headless" not in await page.evaluate("navigator.userAgent")
        assert await page.evaluate("navigator.webdriver") is False
    async with driven(sandbox) as context:
        assert [await page.title() for page in context.pages] == ["A page"]


async def test_browser__downloads_are_files_of_the_sandbox(sandbox):
    async with driven(sandbox) as context:
        page = context.pages[0]
        await page.goto(f"http://localhost:{SITE}/")
        async with page.expect_download() as download:
            await page.evaluate(
                "() => { const a = document.createElement('a'); a.href = '/report.txt';"
                " a.download = ''; document.body.append(a); a.click() }"
            )
        await download.value
        await page.wait_for_timeout(100)
    assert sandbox.run("cat /home/user/downloads/*") == "done"


async def test_browser__a_webdriver_session_uses_the_same_browser(sandbox):
    async with httpx.AsyncClient(timeout=LONG) as client, driven(sandbox) as context:
        base = sandbox.told["webdriver_url"]
        capabilities = {"alwaysMatch": {"browserName": "chrome", "webSocketUrl": True}}
        made = await client.post(f"{base}/session", json={"capabilities": capabilities})
        session = made.json()["value"]
        assert session["capabilities"]["webSocketUrl"].startswith(base.replace("http", "ws", 1))
        path = f"{base}/session/{session['sessionId']}"
        await client.post(f"{path}/url", json={"url": f"http://localhost:{SITE}/"})
        assert (await client.get(f"{path}/title")).json() == {"value": "A page"}
        assert f"http://localhost:{SITE}/" in [page.url for page in context.pages]
        assert (await client.delete(path)).json() == {"value": None}
        assert await context.pages[0].evaluate("1 + 1") == 2


async def test_browser__the_live_view_shows_its_tabs_and_takes_input(sandbox, pictures):
    async with driven(sandbox) as context, running_chromium() as person:
        page = context.pages[0]
        await page.goto(f"http://localhost:{SITE}/")
        view = await person.new_page(viewport={"width": 1400, "height": 900})
        await view.goto(sandbox.told["live_url"])
        await view.get_by_role("tab", name="A page").wait_for(timeout=LONG * 1000)
        await view.locator("#picture:not([hidden])").wait_for(timeout=LONG * 1000)
        await view.screenshot(path=pictures / "browser-live-view.png")
        await page.evaluate(
            "document.addEventListener('keydown', event => document.title = event.key)"
        )
        await view.locator("#picture").click()
        await view.keyboard.press("k")
        await page.wait_for_function("document.title === 'k'")
        await view.reload()
        await view.get_by_role("tab", name="k").wait_for(timeout=LONG * 1000)
        await view.goto(f"{sandbox.told['live_url']}/devtools")
        await view.wait_for_function("document.title.startsWith('DevTools')", timeout=LONG * 1000)


async def test_browser__a_link_for_watching_shows_the_page_and_takes_no_input(sandbox, pictures):
    links = sandbox.ask("POST", "/browser/links", json={"live_mode": "view"}).json()
    async with driven(sandbox) as context, running_chromium() as person:
        page = context.pages[0]
        await page.goto(f"http://localhost:{SITE}/")
        view = await person.new_page(viewport={"width": 1400, "height": 900})
        await view.goto(links["live_url"])
        await view.locator("#picture:not([hidden])").wait_for(timeout=LONG * 1000)
        await view.get_by_text("You are watching.").wait_for()
        await view.locator("#picture").click()
        await view.screenshot(path=pictures / "browser-watching.png")
        assert await page.title() == "A page"


async def test_browser__only_allowed_domains_are_reached_whatever_a_driver_does(warm_server, warm):
    headers = {"X-API-Key": warm_server.admin_key}
    async with httpx.AsyncClient(base_url=warm_server.url, headers=headers, timeout=LONG) as api:
        body = {"template": warm, "allowed_domains": ["allowed.example"]}
        made = (await api.post("/v1/browsers", params={"wait": 50}, json=body)).json()
        assert made["state"] == "running", made
        try:
            await _check_refusals(made["cdp_url"])
        finally:
            await api.post(f"/v1/browsers/{made['id']}/release")


async def _check_refusals(cdp_url):
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(cdp_url)
        context = browser.contexts[0]
        page = context.pages[0]
        await page.goto("http://allowed.example/")
        assert "not among" not in await page.inner_text("body")  # the name does not exist
        await page.goto("http://other.example/")
        assert "other.example is not among the allowed domains" in await page.inner_text("p")
        with pytest.raises(Error, match="ERR_TUNNEL_CONNECTION_FAILED"):
            await page.goto("https://other.example/")
        session = await context.new_cdp_session(page)
        await session.send("Fetch.disable")
        other = await context.new_page()
        refused = await other.goto("http://192.0.2.7/")
        assert refused is not None
        assert refused.status == 403
        await page.goto("http://allowed.example/")
        await page.set_content("<iframe src='http://other.example/'></iframe>")
        frame = page.frame_locator("iframe")
        await frame.get_by_text("not among the allowed domains").wait_for()
        state = await page.evaluate(
            """() => new Promise(done => {
                const socket = new WebSocket("ws://other.example/");
                socket.onopen = () => done("open");
                socket.onerror = () => done("refused");
            })"""
        )
        assert state == "refused"
        await browser.close()


async def test_browser__that_was_killed_is_started_again(sandbox):
    async with driven(sandbox) as context:
        crashed = context.pages[0].goto("chrome://crash")
        with pytest.raises(Error):
            await crashed
    sandbox.run("pkill -KILL -f [r]emote-debugging-port")
    sandbox.wait("curl --silent --fail localhost:9222/json/version")
    async with driven(sandbox) as context:
        page = await context.new_page()
        await page.goto(f"http://localhost:{SITE}/")
        assert await page.title() == "A page"


async def test_browser__sleeps_between_messages_and_keeps_its_pages(sandbox):
    async with driven(sandbox) as context:
        page = context.pages[0]
        await page.goto(f"http://localhost:{SITE}/")
        await page.evaluate("window.kept = 42")
        sandbox.ask("PATCH", json={"idle_timeout_s": 1})

        async def is_paused():
            state = await asyncio.to_thread(lambda: sandbox.ask("GET").json()["state"])
            return state == "paused"

        for _ in range(3):
            await until(is_paused)
            assert await page.evaluate("window.kept") == 42


async def test_browser__a_refusing_proxy_is_shown_and_never_passed_by(sandbox):
    configure(
        sandbox,
        hosts={"mapped.example": f"127.0.0.1:{SITE}"},
        upstreams=[
            {"type": "external", "server": "http://127.0.0.1:9", "domain_pattern": "shop"},
        ],
    )
    async with driven(sandbox) as context:
        page = context.pages[0]
        await page.goto("http://mapped.example/")
        assert await page.title() == "A page"
        refused = await page.goto("http://shop.example/")
        assert refused is not None
        assert refused.status == 502
        assert "The proxy 127.0.0.1:9 cannot be reached" in await page.inner_text("p")
        await page.goto("http://other.example/")
        assert "No proxy of this session covers other.example" in await page.inner_text("p")
        with pytest.raises(Error, match="ERR_TUNNEL_CONNECTION_FAILED"):
            await page.goto("https://other.example/")
