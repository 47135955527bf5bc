import pytest

from tests.engine.host_networks import outside, server, workplace
from tests.engine.network.guest_dialler import equip
from tests.engine.network.name_policies import STUB
from tests.engine.network.stub_resolver import EngineElsewhere, stubbed


@pytest.fixture(scope="session")
def beyond():
    """Put networks with servers in them beyond the host."""
    with outside() as beyond:
        yield beyond


@pytest.fixture
async def place():
    """Make an engine's directories, and its host's list of resolvers."""
    async with workplace() as place:
        place.resolver_configuration.write_text(f"nameserver {STUB}\n")
        yield place


@pytest.fixture
async def network(place):
    """Open the network of an engine."""
    async with place.network() as network:
        yield network


@pytest.fixture
async def servers(beyond):
    """Run two servers beyond the host; gives their addresses and ports."""
    async with (
        server(beyond.netns, beyond.internet) as one,
        server(beyond.netns, beyond.elsewhere) as other,
    ):
        yield (beyond.internet, one), (beyond.elsewhere, other)


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """Run an engine that listens on all of the host's addresses and resolves by a stub."""
    with stubbed(tmp_path_factory.mktemp("stubbed")) as mounts:
        engine = EngineElsewhere("--host", "0.0.0.0", "--pool-size", "2", mounts=mounts)
        engine.start()
        yield engine
        engine.remove()


@pytest.fixture
async def online(shared):
    """Hand out a sandbox that may use the internet."""
    return await equip(shared)
