"""Browserbase's client and playwright, unmodified, against the browser of the template `browser`."""

import io
import re
import time
import zipfile

import pytest
from browserbase import Browserbase, ConflictError
from playwright.sync_api import sync_playwright

from tests.server.support.server_process import server_process
from tests.template.conftest import build

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

PAGE = "data:text/html,<title>A page</title><a download='a.txt' href='data:text/plain,done'>get</a>"
EXTENSION = {
    "manifest.json": """{"manifest_version": 3, "name": "Marker", "version": "1.0", "content_scripts":
        [{"matches": ["http://*/*"], "js": ["mark.js"]}]}""",
    "mark.js": "document.documentElement.dataset.marked = 'yes';",
}


@pytest.fixture(scope="module")
def bb(options):
    """Call a server whose provider has the template."""
    build("browser", options)
    variables = {f"E2B_{name.upper()}": value for name, value in options.items()}
    with server_process(variables=variables) as server:
        server.start()
        with Browserbase(
            api_key=server.admin_key,
            base_url=f"{server.url}/browserbase",
            _strict_response_validation=True,
        ) as client:
            yield client


@pytest.fixture(scope="module")
def playwright():
    with sync_playwright() as playwright:
        yield playwright


def test_session__is_driven_by_playwright(bb, playwright):
    session = bb.sessions.create()
    browser = playwright.chromium.connect_over_cdp(session.connect_url)
    page = browser.contexts[0].pages[0]
    page.goto(PAGE)
    assert page.title() == "A page"
    [shown] = bb.sessions.debug(session.id).pages
    assert shown.title == "A page"
    browser.close()
    deadline = time.monotonic() + 60
    while bb.sessions.retrieve(session.id).status == "RUNNING" and time.monotonic() < deadline:
        time.sleep(0.5)
    assert bb.sessions.retrieve(session.id).status == "COMPLETED"


def test_session__downloads_are_in_the_archive(bb, playwright):
    session = bb.sessions.create()
    browser = playwright.chromium.connect_over_cdp(session.connect_url)
    context = browser.contexts[0]
    client = browser.new_browser_cdp_session()
    client.send(
        "Browser.setDownloadBehavior",
        {"behavior": "allow", "downloadPath": "downloads", "eventsEnabled": True},
    )
    page = context.pages[0]
    page.goto(PAGE)
    with page.expect_download() as download:
        page.click("a")
    assert download.value.failure() is None
    browser.close()
    content = bb.sessions.downloads.list(session.id).read()
    archive = zipfile.ZipFile(io.BytesIO(content))
    [name] = archive.namelist()
    assert re.fullmatch(r"a-[0-9]{13}\.txt", name)
    assert archive.read(name) == b"done"


def zipped(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def test_context__keeps_cookies_from_one_session_to_the_next(bb, playwright):
    context = bb.contexts.create()
    settings = {"context": {"id": context.id, "persist": True}}
    session = bb.sessions.create(browser_settings=settings)
    browser = playwright.chromium.connect_over_cdp(session.connect_url)
    cookie = {"name": "seen", "value": "yes", "domain": "example.com", "path": "/"}
    browser.contexts[0].add_cookies([{**cookie, "expires": time.time() + 3600}])
    with pytest.raises(ConflictError, match="Another session writes"):
        bb.sessions.create(browser_settings=settings)
    time.sleep(1)
    browser.close()
    bb.sessions.update(session.id, status="REQUEST_RELEASE")

    deadline = time.monotonic() + 120
    while True:
        try:
            again = bb.sessions.create(browser_settings=settings)
            break
        except ConflictError:
            assert time.monotonic() < deadline
            time.sleep(1)
    browser = playwright.chromium.connect_over_cdp(again.connect_url)
    assert [each["value"] for each in browser.contexts[0].cookies("http://example.com")] == ["yes"]
    browser.close()
    bb.sessions.update(again.id, status="REQUEST_RELEASE")


def test_extension__is_loaded_and_the_viewport_is_set(bb, playwright):
    extension = bb.extensions.create(file=("marker.zip", zipped(EXTENSION)))
    session = bb.sessions.create(
        extension_id=extension.id, browser_settings={"viewport": {"width": 900, "height": 700}}
    )
    browser = playwright.chromium.connect_over_cdp(session.connect_url)
    page = browser.contexts[0].pages[0]
    page.goto("http://localhost:9222/json/version")
    assert page.evaluate("document.documentElement.dataset.marked") == "yes"
    assert page.evaluate("window.outerWidth") == 900
    browser.close()
    bb.sessions.update(session.id, status="REQUEST_RELEASE")
    bb.extensions.delete(extension.id)


def test_proxy__that_does_not_answer_is_never_bypassed(bb, playwright):
    proxy = {"type": "external", "server": "http://127.0.0.1:1", "username": "u", "password": "p"}
    session = bb.sessions.create(proxies=[proxy])
    browser = playwright.chromium.connect_over_cdp(session.connect_url)
    answer = browser.contexts[0].pages[0].goto("http://example.com/")
    assert answer.status == 502
    browser.close()
    bb.sessions.update(session.id, status="REQUEST_RELEASE")
