import secrets

import pytest
import pytest_asyncio

from sandbox_client import AsyncSandboxClient, SandboxClient
from tests.client.sync_in_thread import SyncInThread
from tests.client.tcp_proxy import TcpProxy
from tests.server.conftest import bundled_url, engine, servers  # noqa: F401 - fixtures
from tests.server.support.databases import new_database
from tests.server.support.fault_proxy import FaultyProxy
from tests.server.support.server_process import server_process, variables_of


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def server(bundled_url, engine):  # noqa: F811
    """Run a server that all tests of the client share."""
    async with new_database(bundled_url) as url:
        with server_process(variables=variables_of(engine, url)) as server:
            server.start()
            yield server


@pytest.fixture(params=["async", "sync"])
def client_at(request, server):
    """Make clients of either variant, which tests use in the same way."""

    def make(url=server.url, api_key=server.admin_key, **options):
        if request.param == "async":
            return AsyncSandboxClient(url, api_key, **options)
        return SyncInThread(SandboxClient(url, api_key, **options))

    return make


@pytest.fixture
async def client(client_at):
    async with client_at() as client:
        yield client


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def sandbox_id(server):
    """Make the sandbox that tests share which leave it running."""
    async with (
        AsyncSandboxClient(server.url, server.admin_key) as client,
        await client.create_sandbox(template="base") as sandbox,
    ):
        yield sandbox.id


@pytest.fixture
async def sandbox(client, sandbox_id):
    return await client.get_sandbox(sandbox_id)


@pytest.fixture
async def narrow(server, client_at):
    """Be a tenant that may have one sandbox at a time."""
    name = f"narrow-{secrets.token_hex(4)}"
    async with AsyncSandboxClient(server.url, server.admin_key) as admin:
        await admin.put_tenant(name, max_running=1)
        key = await admin.create_key(tenant=name)
    async with client_at(api_key=key.secret) as client:
        yield client


@pytest.fixture
async def proxy(server):
    """Stand between client and server, where a test says what goes wrong."""
    async with FaultyProxy(int(server.url.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture
async def wire(server):
    """Stand between client and server, where connections break."""
    async with TcpProxy(int(server.url.rpartition(":")[2])) as wire:
        yield wire
