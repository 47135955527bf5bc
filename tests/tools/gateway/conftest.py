import json
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox_tools.gateway.config_files import ConfigFiles
from sandbox_tools.gateway.gateway import Gateway
from sandbox_tools.gateway.upstream import Timeouts
from sandbox_tools.toolkit.settings_file import SettingsFile
from tests.tools.tool_server_process import started_tool_server, write_settings

STDIO_SERVER = [sys.executable, str(Path(__file__).with_name("stdio_server.py"))]
QUICK = Timeouts(start=60, retry=0.05, longest_retry=0.1, probe=0.1, relist=0.05)


def stdio_server(*arguments, **more):
    command, script = STDIO_SERVER
    return {"command": command, "args": [script, *arguments], **more}


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def tool_server(tmp_path_factory):
    """Start one for all files here, in which tests add servers of names of their own."""
    async with started_tool_server(tmp_path_factory.mktemp("gateway")) as server:
        yield server


class Files:
    """The three files that say which servers there are."""

    def __init__(self, directory):
        self.settings = directory / "tools.json"
        self.shipped = directory / "shipped.json"
        self.user = directory / "home/mcp.json"
        self.user.parent.mkdir()

    def sources(self):
        return ConfigFiles(SettingsFile(self.settings), shipped=self.shipped, user=self.user)

    def say(self, file, servers, **more):
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"mcpServers": servers, **more}))
        new.replace(file)

    def set(self, servers, **more):
        write_settings(self.settings, mcp_servers=servers, **more)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest_asyncio.fixture
async def gateway(files, tmp_path):
    """Make one in this process, which is tried again sooner."""
    gateway = Gateway(files.sources(), directory=tmp_path, logs=tmp_path, timeouts=QUICK)
    async with gateway.serving():
        yield gateway
