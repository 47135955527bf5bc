import httpx
import pytest
import pytest_asyncio
from e2b.envd.filesystem.filesystem_connect import FilesystemClient

from tests.engine.envd.file_tree import answering, file_box


@pytest.fixture(scope="module")
def shared_box():
    """Set up one tree for all tests of a module."""
    with file_box() as box:
        yield box


@pytest.fixture
def box(shared_box):
    """Hand out the tree as if it were fresh."""
    shared_box.clear()
    shared_box.access_token = None
    return shared_box


@pytest.fixture
def home(box):
    """Tell where on the host the user's home is."""
    return box.inside / "home/user"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(shared_box):
    """Serve the tree as a sandbox's port 49983."""
    async with answering(shared_box) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="module")
async def http(box, url):
    """Make a client that asks for things as they are."""
    async with httpx.AsyncClient(
        base_url=url, headers={"accept-encoding": "identity"}, timeout=60
    ) as http:
        yield http


@pytest.fixture
def client(box, url):
    """Make the SDK's own client of the filesystem service."""
    return FilesystemClient(url)
