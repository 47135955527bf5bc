"""Every command of the README and the documents, run in their order on a server that was started as users start one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_server.processes.engine import LocalEngine
from tests.docs.blocks import REPOSITORY, RUN, blocks_of, documents, script_of
from tests.server.running import server_process

ELSEWHERE = {
    "operations.md",
    "containers.md",
    "api.md",
    "sbx.md",
    "ci.md",
}  # have tests of their own
HERE = [document for document in documents() if document.name not in ELSEWHERE]


@pytest.fixture(scope="module")
def server():
    with server_process() as server:
        server.start()
        yield server


@pytest.fixture
def run(server, tmp_path):
    """Run a document's code in an empty directory, with a sandbox in ID."""
    environment = {
        **server.environment(),
        "SANDBOX_SERVER_STATE_DIR": str(server.state_dir),
        "SANDBOX_SERVER_URL": server.url,
        "SANDBOX_SERVER_API_KEY": server.admin_key,
        "SERVER": server.url,
        "KEY": server.admin_key,
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    engine = LocalEngine(server.engine_dir).find_note()
    assert engine is not None
    replaced = {
        "http://127.0.0.1:8100": server.url,
        "localhost:8100": f"localhost:{server.url.rpartition(':')[2]}",
        "127.0.0.1:3400": f"127.0.0.1:{engine.port}",
        "sudo cat /var/lib/sandbox-server": f"cat {server.state_dir}",
    }

    def run(document):
        return subprocess.run(
            ["bash", "-c", script_of(document, replaced)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    return run


@pytest.mark.needs_engine
@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq here")
@pytest.mark.parametrize("document", HERE, ids=lambda document: document.name)
def test_what_a_document_shows_works(run, document):
    done = run(document)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", documents(), ids=lambda document: document.name)
def test_links_of_a_document_lead_somewhere(document):
    for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / link).exists(), link


def test_code_that_is_not_run_says_why():
    for document in documents():
        for block in blocks_of(document):
            assert block.language not in RUN or block.reason != "", document.name


def test_the_readme_is_short():
    assert len((REPOSITORY / "README.md").read_text().splitlines()) < 200
