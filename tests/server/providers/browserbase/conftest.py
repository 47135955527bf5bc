"""Two servers: the one under test, and one whose Browserbase API is the provider of the first."""

from dataclasses import dataclass

import pytest
import pytest_asyncio
from pydantic import SecretStr

from sandbox_server.domain.ids import new_id
from sandbox_server.providers.browserbase import BrowserbaseBackend
from sandbox_server.providers.settings import BackendSettings
from sandbox_server.templates.bundled import read_bundled_templates
from tests.server.support.databases import new_database
from tests.server.support.fault_proxy import FaultyProxy
from tests.server.support.full_server import Outside, inside, serving, serving_outside
from tests.server.support.request_recorder import start_recorder

CDP_PORT = 9222


@dataclass(frozen=True)
class Account:
    """The account at the provider, as its owner sees it."""

    outside: Outside

    async def ask(self, method: str, path: str, **options):
        async with self.outside.api() as api:
            answer = await api.request(method, f"/browserbase/v1{path}", **options)
        assert answer.is_success, answer.text
        return answer.json()

    async def session_of(self, sandbox_id: str):
        """Find the session that is the sandbox of the server under test."""
        listed = await self.ask("GET", "/sessions")
        [found] = [
            each
            for each in listed
            if each["userMetadata"].get("sandbox_server_sandbox") == sandbox_id
        ]
        return found

    async def start_browser(self, session_id: str) -> None:
        """Start the recorder that stands in for the browser of a session."""
        async with self.outside.api() as api:
            sandbox_id = (await api.get(f"/v1/browsers/{session_id}")).json()["sandbox_id"]
        await start_recorder(await inside(self.outside, sandbox_id), CDP_PORT)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def account(bundled_url, engine, tmp_path_factory):
    backend = {"capabilities": {"base": ["browser"]}}
    state_dir = tmp_path_factory.mktemp("provider")
    async with (
        new_database(bundled_url) as url,
        serving_outside(url, engine, state_dir=state_dir, backend=backend) as provider,
    ):
        async with provider.api() as api:
            told = await api.put("/v1/configuration", json={"browser": {"template": "base"}})
            assert told.is_success, told.text
        yield Account(provider)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider(account):
    """Stand between the two servers."""
    async with FaultyProxy(account.outside.port) as proxy:
        yield proxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(bundled_url, account, provider, tmp_path_factory):
    """Run the server under test, whose only backend is the other one."""
    settings = settings_of(provider.url, account.outside.key)
    state_dir = tmp_path_factory.mktemp("state")
    bundled = read_bundled_templates()
    async with (
        new_database(bundled_url) as url,
        serving(url, (settings,), bundled=bundled, state_dir=state_dir) as outside,
    ):
        yield outside


@pytest.fixture
def installation_id():
    return new_id()


@pytest_asyncio.fixture(loop_scope="module")
async def backend(account, provider, installation_id):
    """Call the provider without a server."""
    settings = settings_of(provider.url, account.outside.key)
    backend = BrowserbaseBackend(settings.endpoint(), installation_id=installation_id)
    yield backend
    await backend.close()


def settings_of(url: str, key: str) -> BackendSettings:
    return BackendSettings(
        name="bb", kind="browserbase", api_key=SecretStr(key), api_url=f"{url}/browserbase"
    )
