"""code-server in a real browser, at a host of its own that the server leads to."""

import pytest
from playwright.async_api import expect

from tests.browser import running_chromium

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

PATIENCE_MS = 120_000
HEALTH = "curl --fail --silent http://127.0.0.1:9000/healthz"


@pytest.fixture(scope="module")
def link(served):
    """Make a link to the code-server of a sandbox, as for a person who has no key."""
    served.wait(HEALTH)
    return served.ask("POST", "/ports/9000/links").json()["url"]


@pytest.fixture
async def page(link):
    """Open the link in a browser."""
    async with running_chromium() as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        await page.goto(link)
        yield page


async def log_in(page, password):
    await page.fill("input[type=password]", password)
    await page.click("input[type=submit]")


async def test_code_server__supports_editing_and_terminals_in_a_browser(served, page, pictures):
    served.write("/workspace/hello.txt", "hello from the sandbox\n")
    await log_in(page, served.urls["code_server_password"])
    await page.get_by_role("treeitem", name="hello.txt").dblclick()
    editor = page.locator(".monaco-editor .view-line").first
    await expect(editor).to_have_text("hello from the sandbox", timeout=PATIENCE_MS)
    await page.keyboard.press("Control+`")
    await page.locator(".terminal .xterm-cursor").first.wait_for()
    await page.keyboard.type("id -un | tee /workspace/typed.txt\n")
    await page.get_by_role("treeitem", name="typed.txt").dblclick()
    await expect(editor).to_have_text("user", timeout=PATIENCE_MS)
    await page.screenshot(path=pictures / "code-server.png")
    assert page.url.startswith(served.urls["code_server"].rstrip("/"))
    assert "ticket=" not in page.url


async def test_code_server__requires_the_password(page):
    await log_in(page, "another")
    await expect(page.get_by_text("Incorrect password")).to_be_visible(timeout=PATIENCE_MS)


async def test_code_server__requires_a_preview_link(served):
    async with running_chromium() as browser:
        page = await browser.new_page()
        answer = await page.goto(served.urls["code_server"])
        assert answer is not None
        assert answer.status in {401, 403}
        assert await page.locator("input[type=password]").count() == 0
