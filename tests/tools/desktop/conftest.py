import pytest_asyncio

from tests.tools.desktop.desktop_process import started_desktop


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def desktop_process(tmp_path_factory):
    directory = tmp_path_factory.mktemp("desktop")
    async with started_desktop(directory, "--stall-s", "1") as process:
        yield process


@pytest_asyncio.fixture
async def desktop(desktop_process):
    """One desktop for all tests; each leaves control to the agent and its size as it was."""
    async with desktop_process.connected() as desktop:
        yield desktop
