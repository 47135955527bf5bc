import contextlib
import secrets
from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio

from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.errors import BackendError
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.provider import Endpoint, NewSandbox
from tests.browser import WatchedPage, running_chromium
from tests.engine.shared_engine import SharedEngine
from tests.server.forges.support.fixtures import *  # noqa: F403 - fixtures
from tests.server.support.api_fixtures import *  # noqa: F403 - fixtures
from tests.server.support.databases import (
    BUNDLED,
    DatabasePool,
    PostgresServers,
    new_database,
)
from tests.server.support.fault_proxy import FaultyProxy
from tests.server.support.full_server import serving_outside
from tests.server.support.in_process_server import running_server
from tests.server.support.managed_sandboxes import living_at, new_living
from tests.server.support.scratch_directory import scratch_directory


@pytest.fixture(scope="session")
def servers(run_services):
    """Find the PostgreSQL servers of this run."""
    return PostgresServers(run_services)


@pytest.fixture(scope="session")
def bundled_url(servers):
    """Find the PostgreSQL for what tests share."""
    return servers.url(BUNDLED)


@pytest.fixture(scope="session")
def engine(run_services):
    """Find the provider that tests share; each has an installation of its own there."""
    return SharedEngine(run_services.service("engine"))


@pytest.fixture
def scratch():
    """Make a directory that every account may enter, for a PostgreSQL of the test's own."""
    with scratch_directory() as directory:
        yield directory


@pytest.fixture
def postgres_version():
    """Say which PostgreSQL a test gets; `EVERY_POSTGRES` says otherwise."""
    return BUNDLED


@pytest.fixture
def server_url(servers, postgres_version):
    """Find the server that the test's databases are on."""
    return servers.url(postgres_version)


@pytest.fixture(scope="session")
def database_pools():
    """Keep databases of each PostgreSQL, which tests use one after the other."""
    pools: dict[str, DatabasePool] = {}
    yield pools
    for pool in pools.values():
        pool.close()


@pytest.fixture
def database_url(server_url, database_pools):
    """Lend the test a migrated database that is empty."""
    if server_url not in database_pools:
        database_pools[server_url] = DatabasePool(server_url)
    with database_pools[server_url].lend() as url:
        yield url


@pytest.fixture
async def database(database_url):
    """Open a pool of connections to the test's database."""
    engine = create_engine(database_url)
    yield engine
    await engine.dispose()


@pytest.fixture
def sessions(database):
    return create_sessions(database)


@pytest.fixture
async def browser():
    """Run a real Chromium, without windows."""
    async with running_chromium() as browser:
        yield browser


@pytest.fixture
async def tab(browser):
    """Open an empty page, and note what goes wrong in it."""
    return WatchedPage(await browser.new_page())


@pytest.fixture
async def proxy(engine):
    """Stand between the backend and the engine."""
    async with FaultyProxy(engine.port) as proxy:
        yield proxy


@pytest.fixture
async def backend_at(engine):
    """Make backends of an installation of the test's own, which leave no sandbox behind."""
    installation_id = secrets.token_hex(10)
    async with contextlib.AsyncExitStack() as closing:

        def make(url=engine.url, *, installation_id=installation_id, **options):
            endpoint = Endpoint(
                name=options.pop("name", "local"),
                api_url=url,
                api_key=options.pop("api_key", engine.api_key),
                sandbox_url=url,
                domain=f"localhost:{engine.port}",
            )
            backend = E2BBackend(endpoint, installation_id=installation_id, **options)
            closing.push_async_callback(backend.close)
            return backend

        yield make
        sweeper = make()
        for left in await sweeper.list_all():
            with contextlib.suppress(BackendError):
                await sweeper.kill(left.id)


@pytest.fixture
async def living(sessions, backend_at):
    """Have a server look after a tenant's sandboxes at the engine."""
    return await new_living(sessions, backend_at())


@pytest.fixture
async def faulty(living, backend_at, proxy):
    """Have another server look after the same sandboxes, to which things happen on the way."""
    return living_at(living.sessions, backend_at(proxy.url), tenant_id=living.tenant_id)


@pytest.fixture
async def server(database, living):
    """Run a server for one caller."""
    async with running_server(database, living) as server:
        yield server


@pytest.fixture
async def replica(database_url, backend_at, living):
    """Run a second server on the same database, with connections of its own."""
    engine = create_engine(database_url)
    other = living_at(create_sessions(engine), backend_at(), tenant_id=living.tenant_id)
    async with running_server(engine, other) as server:
        yield server
    await engine.dispose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(bundled_url, engine, tmp_path_factory):
    """Run all of a server in this process, for all tests of a module."""
    state_dir = tmp_path_factory.mktemp("state")
    async with (
        new_database(bundled_url) as url,
        serving_outside(url, engine, state_dir=state_dir) as outside,
    ):
        yield outside


@pytest.fixture
def options(engine):
    """Point the bare SDK at the engine."""
    return engine.options


@pytest.fixture
def new_sandbox():
    """Describe sandboxes with ids of their own."""

    def describe(**fields):
        plain = NewSandbox(
            sandbox_id=secrets.token_hex(10),
            tenant_id="tenant",
            template="base",
            timeout=timedelta(minutes=5),
        )
        return replace(plain, **fields)

    return describe
