import contextlib
import secrets

import httpx
import pytest
from e2b import AsyncSandbox, Sandbox

from tests.engine.shared_engine import SharedEngine


@pytest.fixture(scope="session")
def engine(run_services):
    """Find the engine that most tests of the run share; one that kills its engine starts its own."""
    return SharedEngine(run_services.service("engine"))


@pytest.fixture
def options(engine):
    """Point the SDK at the shared engine."""
    return engine.options


@pytest.fixture
async def sandbox(options):
    """Create a sandbox of the test's own."""
    sandbox = await AsyncSandbox.create(timeout=120, **options)
    yield sandbox
    with contextlib.suppress(Exception):
        await sandbox.kill()


@pytest.fixture
async def neighbour(options):
    """Create the sandbox next door."""
    async with await AsyncSandbox.create(timeout=120, **options) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def shared_sync(engine):
    """Create a sandbox for those tests of a module that do not disturb each other."""
    with Sandbox.create(timeout=600, **engine.options) as sandbox:
        yield sandbox


@pytest.fixture
async def shared(shared_sync, options):
    """Hand out the shared sandbox in the asynchronous SDK."""
    return await AsyncSandbox.connect(shared_sync.sandbox_id, **options)


@pytest.fixture
async def directory(shared):
    """Make a directory of the test's own in the shared sandbox."""
    path = f"/home/user/{secrets.token_hex(4)}"
    await shared.files.make_dir(path)
    return path


@pytest.fixture
def browse(engine):
    """Make clients of ports in sandboxes."""

    @contextlib.asynccontextmanager
    async def browse(sandbox_id, port):
        host = f"{port}-{sandbox_id}.localhost:{engine.port}"
        async with httpx.AsyncClient(
            base_url=engine.url, headers={"Host": host}, timeout=20
        ) as client:
            yield client

    return browse
