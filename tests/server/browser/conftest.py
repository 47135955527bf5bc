import pytest_asyncio

from tests.browser import WatchedPage, running_chromium


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    """Run one Chromium for all tests of a module."""
    async with running_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser):
    """Open an empty page that shares nothing with those of other tests."""
    page = await browser.new_page()
    yield WatchedPage(page)
    await page.close()
