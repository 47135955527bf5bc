import pytest

from sandbox_server.access.api_keys import ApiKeys, KeyRequest
from sandbox_server.access.authenticator import Authenticator
from tests.server.support.rows import add_default_tenant


class Clock:
    """Advances only when a test sets it."""

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
async def api_keys(sessions, authenticator):
    await add_default_tenant(sessions)
    return ApiKeys(sessions, authenticator)


@pytest.fixture
def issue(api_keys):
    """Create a key of the default tenant."""

    async def issue(**fields):
        return await api_keys.issue(KeyRequest(tenant="default", **fields))

    return issue
