import pytest

from sandbox_tools.forwarder.proxy import Forwarder
from tests.tools.forwarder.servers import Client, Site, UpstreamProxy, listening


@pytest.fixture
async def client():
    forwarder = Forwarder()
    async with listening(forwarder.serve) as port:
        yield Client(port, forwarder)


@pytest.fixture
def site():
    return Site()


@pytest.fixture
async def site_port(site):
    async with listening(site) as port:
        yield port


@pytest.fixture
def upstream(site_port):
    return UpstreamProxy(site_port)


@pytest.fixture
async def upstream_port(upstream):
    async with listening(upstream) as port:
        yield port
