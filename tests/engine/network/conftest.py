import pytest

from tests.engine.outside import outside, workplace


@pytest.fixture(scope="session")
def beyond():
    """Put networks with servers in them beyond the host."""
    with outside() as beyond:
        yield beyond


@pytest.fixture
async def place():
    """Make an engine's directories."""
    async with workplace() as place:
        yield place


@pytest.fixture
async def network(place):
    """Open the network of an engine."""
    async with place.network() as network:
        yield network
