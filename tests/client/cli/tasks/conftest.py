import json
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.server.forges.support.github_emulator import PROGRAMS
from tests.server.forges.support.world import ForgeWorld, forge_world_at
from tests.server.support.databases import new_database
from tests.server.support.server_process import ServerProcess, server_process, variables_of

FORGE_HOSTS = "SANDBOX_SERVER_FORGE_HOSTS"


@dataclass(frozen=True)
class Workplace:
    """A server, and the forge that it works with."""

    server: ServerProcess
    forge: ForgeWorld


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def workplace(bundled_url, engine, run_services, tmp_path_factory):
    """Run a server and an emulated GitHub that all tests of these subcommands share."""
    if not (PROGRAMS / "emulate").exists():
        pytest.skip("run scripts/test-programs: the emulated GitHub is not installed")
    port = int(run_services.service("github-emulators")["port"])
    with forge_world_at(port, tmp_path_factory.mktemp("forge")) as forge:
        async with new_database(bundled_url) as url:
            variables = variables_of(engine, url) | {FORGE_HOSTS: ",".join(forge.hosts)}
            with server_process(variables=variables) as server:
                server.start()
                yield Workplace(server, forge)


@pytest.fixture
def server(workplace):
    return workplace.server


@pytest.fixture
def world(workplace):
    return workplace.forge


@pytest.fixture
def repository(sbx, world):
    """Have the repository on the server, with the forge's credential."""
    if sbx("repo", "show", world.repository).returncode:
        document = world.token
        set_ = ("forge", "set", "github", "--kind", "github", "--token-file", "-")
        urls = ("--api-url", document["api_url"], "--git-url", document["git_url"])
        assert sbx(*set_, *urls, stdin=document["token"].encode()).returncode == 0
        added = sbx("repo", "add", world.repository, "--template", "base")
        assert added.returncode == 0, added.stderr
    return world.repository


@pytest.fixture
def task_of(sbx):
    """Read a task as the API returns it."""

    def read(task_id):
        return json.loads(sbx("--json", "task", "show", task_id).stdout)

    return read
