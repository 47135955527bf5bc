"""The commands about tasks in our documents, with an emulated GitHub instead of the real one."""

import subprocess

import pytest

from sandbox_client import SandboxClient
from sandbox_client.protocol.address import API_KEY
from tests.client.cli.conftest import SBX
from tests.docs.blocks import REPOSITORY, blocks_of

pytestmark = pytest.mark.needs_engine

AGENT = "echo more >> README.md && git commit -qam 'docs: say more'"


def block_of(document, text):
    [found] = [block for block in blocks_of(REPOSITORY / document) if text in block.code]
    return found.code


@pytest.fixture
def newcomer(server):
    """Be a tenant that has no forge yet; gives the key."""
    with SandboxClient(server.url, server.admin_key) as admin:
        admin.put_tenant("newcomer")
        return admin.create_key(tenant="newcomer").secret


def test_readme__goes_from_an_issue_to_a_pull_request(server, variables, world, newcomer, tmp_path):
    document = world.token
    first, second = world.open_issue("Say more"), world.open_issue("Say it again")
    script = block_of("README.md", "sbx task run")
    for usual, own in {
        "--kind github": f"--kind github --api-url {document['api_url']} --git-url {document['git_url']}",
        "sbx repo add": "sbx repo add --template base",
        "--agent claude": f'--agent-command "{AGENT}"',
        "make test": "test -s README.md",
        "--issue 17": f"--issue {first}",
        '"issue": 18': f'"issue": {second}',
    }.items():
        assert usual in script
        script = script.replace(usual, own)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={
            **variables,
            "PATH": f"{SBX.parent}:{variables['PATH']}",
            "GITHUB_TOKEN": document["token"],
            "ANTHROPIC_API_KEY": "none",
            "SERVER": server.url,
            "KEY": newcomer,
            API_KEY: newcomer,
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    pulls = [line for line in done.stdout.splitlines() if line.startswith("http")]
    assert len(set(pulls)) == 3
    assert "+more" in done.stdout


def test_sbx_document__options_of_tasks_exist(sbx):
    """Each command of the document is understood, as far as its words go."""
    for text in ("sbx forge set", "sbx task run"):
        for line in block_of("docs/sbx.md", text).splitlines():
            words = line.partition("#")[0].split()[1:]
            shown = sbx(*words[:2], "--help").stdout
            options = [word for word in words if word.startswith("--")]
            assert options == [option for option in options if option in shown]
