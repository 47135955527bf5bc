"""The tool server of our templates in a bare sandbox, used through the server by third-party clients."""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from tests.server.tools.python_packages import pack_tool_server
from tests.template.clients.environment import work_with_langchain
from tests.template.clients.hands import Hands, Site
from tests.template.clients.official import calling, official_client
from tests.template.clients.work import do_what_needs_no_programs

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
START = "sudo install -d -o user /workspace && cd /workspace && PYTHONPATH=~/packages exec python3 -m sandbox_tools serve"
READY = "until (echo >/dev/tcp/127.0.0.1/6060); do sleep 0.02; done"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(api):
    """Create a sandbox with the running tool server."""
    ripgrep = shutil.which("rg")
    assert ripgrep is not None, "scripts/test-programs installs it"
    made = await api.post("/v1/sandboxes", json={})
    path = f"/v1/sandboxes/{made.json()['id']}"

    async def run(cmd, **options):
        return (await api.post(f"{path}/commands", json={"cmd": cmd, **options})).json()

    if (await run(f"python{PYTHON} --version"))["exit_code"]:
        pytest.skip(f"what is installed here is for Python {PYTHON}, which its sandboxes have not")
    await api.put(f"{path}/files/archive", params={"path": "packages"}, content=pack_tool_server())
    await api.put(
        f"{path}/files/content",
        params={"path": "/usr/local/bin/rg", "user": "root"},
        content=Path(ripgrep).read_bytes(),
    )
    await run("sudo chmod 755 /usr/local/bin/rg")
    await run(START, background=True)
    assert (await run(READY))["exit_code"] == 0
    yield made.json()
    await api.delete(path)


@pytest.fixture
def site_of(api, sandbox, tmp_path):
    def make(name):
        return Site(sandbox["urls"]["mcp"], api.headers["X-API-Key"], str(tmp_path), name)

    return make


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_mcp_clients__the_official_client_uses_files_and_commands(site_of, mode):
    site = site_of(mode)
    async with official_client(site, mode=mode) as client:
        await do_what_needs_no_programs(Hands(site, calling(client)))


@pytest.mark.slow
async def test_mcp_clients__langchains_client_uses_files_and_commands(site_of):
    listed, used = await asyncio.to_thread(
        work_with_langchain, do_what_needs_no_programs, site_of("langchain")
    )
    assert used < listed
