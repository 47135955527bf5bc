from dataclasses import dataclass

import httpx
import pytest_asyncio

from tests.browser import WatchedPage, running_chromium
from tests.server.support.databases import new_database
from tests.server.support.server_process import ServerProcess, server_process, variables_of
from tests.server.web.page_driver import FirstPage

# Not a loopback name for browsers: without TLS such pages are not trustworthy and send fewer headers.
ELSEWHERE = "boxes.test"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    """Run one Chromium for all tests of a module."""
    async with running_chromium(f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1") as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser):
    """Open an empty page in a new browser context."""
    page = await browser.new_page()
    yield WatchedPage(page)
    await page.close()


@dataclass
class NamedServer:
    """A server with a host name that is same-site with the hosts of sandboxes below it."""

    process: ServerProcess

    @property
    def host(self) -> str:
        return f"boxes.localhost:{self.process._port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    @property
    def admin_key(self) -> str:
        return self.process.admin_key

    @property
    def untrusted_url(self) -> str:
        return f"http://{ELSEWHERE}:{self.process._port}"

    def start(self) -> None:
        self.process.start("--public-url", self.url)

    def client(self) -> httpx.AsyncClient:
        return self.process.client()

    async def make_key(self, **fields: object) -> dict[str, str]:
        async with self.client() as admin:
            made = await admin.post("/v1/keys", json=fields)
        assert made.status_code == 201, made.text
        answer: dict[str, str] = made.json()
        return answer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def named_server(bundled_url, engine):
    """Run a server with two slots for all tests of a module."""
    flags = ("--capacity", "2", "--lease-s", "2")
    async with new_database(bundled_url) as url:
        with server_process(*flags, variables=variables_of(engine, url)) as process:
            server = NamedServer(process)
            server.start()
            yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(named_server):
    async with named_server.client() as api:
        yield api


@pytest_asyncio.fixture(loop_scope="module")
async def create(api):
    """Create sandboxes that are deleted after the test; returns the id."""
    made = []

    async def create(*, wait: int = 60, **wanted: object) -> str:
        answer = await api.post("/v1/sandboxes", params={"wait": wait}, json=wanted)
        assert answer.is_success, answer.text
        sandbox_id: str = answer.json()["id"]
        made.append(sandbox_id)
        return sandbox_id

    yield create
    for sandbox_id in made:
        await api.delete(f"/v1/sandboxes/{sandbox_id}")


@pytest_asyncio.fixture(loop_scope="module")
async def first_page(tab, named_server):
    """Open a tab with the page; at the end there may be only expected errors."""
    page = FirstPage(tab, named_server.url)
    yield page
    assert page.complaints == []
