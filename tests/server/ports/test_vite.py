"""A Vite development server in a sandbox, with a browser page opened by a link."""

import io
import tarfile

import pytest
from e2b import AsyncSandbox

from tests.browser import WatchedPage, running_chromium
from tests.engine.node_packages import install
from tests.engine.polling import until
from tests.server.support.full_server import inside, new_sandbox

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]

VERSION = "8.3.8"
PORT = 5173
PAGE = '<!doctype html><link rel="icon" href="data:,"><h1 id="said">nothing</h1><script type="module" src="/main.js"></script>'


def script(text: str) -> str:
    """Show this text on the page, also after the script changes."""
    return f'document.getElementById("said").textContent = "{text}";\nimport.meta.hot.accept();\n'


@pytest.fixture(scope="module")
def vite():
    """Download Vite once, as an archive with its dependencies."""
    modules = install("vite", VERSION)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as opened:
        opened.add(modules, "node_modules")
    return archive.getvalue()


async def start_vite(sandbox: AsyncSandbox, vite: bytes) -> None:
    for name, content in (("vite.tar", vite), ("index.html", PAGE), ("main.js", script("one"))):
        await sandbox.files.write(f"/home/user/app/{name}", content)
    await sandbox.commands.run("cd app && tar xf vite.tar && rm vite.tar")
    await sandbox.commands.run(
        "cd app && node node_modules/vite/bin/vite.js > vite.log 2>&1", background=True, timeout=0
    )

    async def is_ready() -> bool:
        said = await sandbox.commands.run("cat app/vite.log")
        return "ready in" in said.stdout

    await until(is_ready, timeout=60)


@pytest.mark.slow  # installs Vite from npm
async def test_vite__hot_reload_works_through_the_proxy(outside, vite):
    async with (
        new_sandbox(outside) as sandbox_id,
        outside.api() as api,
        running_chromium() as browser,
    ):
        sandbox = await inside(outside, sandbox_id)
        await start_vite(sandbox, vite)
        link = await api.post(f"/v1/sandboxes/{sandbox_id}/ports/{PORT}/links")
        tab = WatchedPage(await browser.new_page())
        async with tab.page.expect_console_message(lambda said: "connected." in said.text):
            await tab.page.goto(link.json()["url"])
        assert tab.page.url == f"http://{outside.host_of(sandbox_id, PORT)}/"
        await tab.page.get_by_text("one").wait_for()
        await tab.page.evaluate("window.here = 'before'")
        await sandbox.files.write("/home/user/app/main.js", script("two"))
        await tab.page.get_by_text("two").wait_for()
        assert await tab.page.evaluate("window.here") == "before"
        assert tab.complaints == []
