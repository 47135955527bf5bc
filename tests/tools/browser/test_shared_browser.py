"""One browser, two ways in: the tools, and clients of the DevTools protocol at its port."""

import httpx
from playwright.async_api import async_playwright

from tests.chromium_process import listening_chromium
from tests.ports import free_port
from tests.tools.browser.conftest import Browsing
from tests.tools.tool_server_process import started_tool_server


async def test_browser__tools_use_the_browser_that_cdp_clients_use_and_leave_it_running(
    tmp_path, site
):
    page_url = site.serve("/page", "<title>there</title>")
    async with (
        listening_chromium() as chromium,
        started_tool_server(tmp_path, SANDBOX_TOOLS_CDP_PORT=str(chromium.port)) as server,
        server.client() as tools,
        async_playwright() as playwright,
    ):
        browse = Browsing(tools)
        await browse.open(page_url)
        client = await playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{chromium.port}")
        [context] = client.contexts
        assert page_url in [page.url for page in context.pages]
        assert (await browse("close")).startswith("Disconnected. The browser stays")
        assert page_url in [page.url for page in context.pages]
        await client.close()
        assert chromium.process.returncode is None


async def test_browser__that_the_tools_start_listens_for_cdp_clients(tmp_path, site):
    port = free_port()
    page_url = site.serve("/page", "<title>there</title>")
    async with (
        started_tool_server(tmp_path, SANDBOX_TOOLS_CDP_PORT=str(port)) as server,
        server.client() as tools,
        httpx.AsyncClient() as client,
    ):
        browse = Browsing(tools)
        await browse.open(page_url)
        targets = (await client.get(f"http://127.0.0.1:{port}/json/list")).json()
        assert page_url in [target["url"] for target in targets]
        assert await browse("close") == "The browser is closed."
