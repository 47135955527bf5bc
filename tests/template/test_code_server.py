import pytest
from playwright.async_api import expect

from tests.browser import running_chromium

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def opened(computer):
    """Wait for the code-server of a sandbox that has been told its password."""
    computer.settle()
    computer.wait("curl --fail --silent http://127.0.0.1:9000/healthz >/dev/null")
    return computer


async def test_a_person_edits_and_runs_commands_in_a_browser(opened, tmp_path):
    opened.run("echo 'hello from the sandbox' >/workspace/hello.txt")
    async with running_chromium() as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        await page.goto(opened.url(9000))
        await page.fill("input[type=password]", opened.password)
        await page.click("input[type=submit]")
        await page.get_by_role("treeitem", name="hello.txt").dblclick()
        editor = page.locator(".monaco-editor .view-line").first
        await expect(editor).to_have_text("hello from the sandbox", timeout=PATIENCE_MS)
        await page.keyboard.press("Control+`")
        await page.locator(".terminal .xterm-cursor").first.wait_for()
        await page.keyboard.type("id -un >/workspace/typed.txt\n")
        assert opened.wait("grep . /workspace/typed.txt") == "user\n"
        await page.screenshot(path=tmp_path / "workbench.png")
        print(f"a picture of it: {tmp_path / 'workbench.png'}")


async def test_nobody_gets_in_without_the_password(opened):
    async with running_chromium() as browser:
        page = await browser.new_page()
        await page.goto(opened.url(9000))
        await page.fill("input[type=password]", "another")
        await page.click("input[type=submit]")
        await expect(page.get_by_text("Incorrect password")).to_be_visible(timeout=PATIENCE_MS)
