import pytest

from sandbox_server.access.api_keys import KeyRequest, KeyRing
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.tenants import Tenants
from sandbox_server.providers.registry import Backends


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def authenticator(sessions, clock):
    return Authenticator(sessions, clock=clock)


@pytest.fixture
async def key_ring(sessions, authenticator):
    await Tenants(sessions, Backends({})).make_default()
    return KeyRing(sessions, authenticator)


@pytest.fixture
def issue(key_ring):
    """Make a key of the default tenant's."""

    async def issue(**fields):
        return await key_ring.issue(KeyRequest(tenant="default", **fields))

    return issue
