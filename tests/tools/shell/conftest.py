import tempfile
from pathlib import Path

import pytest
import pytest_asyncio

from tests.tools.shell.tmux_command import tmux
from tests.tools.tool_server_process import started_tool_server


@pytest.fixture(scope="package")
def sockets():
    """Make a directory for the socket of tmux, whose path may not be long."""
    with tempfile.TemporaryDirectory(prefix="shells-") as directory:
        yield Path(directory)
        tmux(directory, "kill-server")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def tool_server(tmp_path_factory, sockets):
    directory = tmp_path_factory.mktemp("shells")
    async with started_tool_server(directory, TMUX_TMPDIR=str(sockets)) as server:
        yield server
