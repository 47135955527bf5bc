import pytest

from tests.server.support.server_process import server_process

NOWHERE = {"E2B_API_KEY": f"e2b_{'0' * 40}", "E2B_API_URL": "http://127.0.0.1:9"}


@pytest.fixture
def server():
    """Give a server whose sandboxes would be elsewhere, so that it needs no engine."""
    with server_process(variables=NOWHERE) as server:
        yield server


@pytest.fixture
def started(server):
    server.start()
    return server


@pytest.fixture(scope="module")
def running():
    """Run one server for all tests of a module that only look at it."""
    with server_process(variables=NOWHERE) as server:
        server.start()
        yield server
