"""The recipe of docs/ci.md, as a runner carries it out."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.server.support.server_process import server_process

RECIPE = Path(__file__).parent.parent / "docs/recipes/ci"

pytestmark = pytest.mark.needs_engine


@pytest.fixture(scope="module")
def server():
    with server_process() as server:
        server.start()
        yield server


@pytest.fixture
def start(server, tmp_path):
    """Run a step of the job in a checkout whose `make test` is what is given."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/run-in-sandbox").symlink_to(RECIPE / "run-in-sandbox")
    (tmp_path / ".git").mkdir()

    def start(test):
        (tmp_path / "test.sh").write_text(test)
        return subprocess.Popen(
            ["sh", "-ec", ".ci/run-in-sandbox 'sh test.sh'"],
            cwd=tmp_path,
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "SANDBOX_SERVER_URL": server.url,
                "SANDBOX_SERVER_API_KEY": server.admin_key,
                "SANDBOX_TEMPLATE": "base",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def sandboxes(server):
    headers = {"X-API-Key": server.admin_key}
    listed = httpx.get(f"{server.url}/v1/sandboxes", headers=headers, timeout=60).json()
    return [one["id"] for one in listed["items"]]


def test_ci_recipe__returns_the_jobs_output_and_exit_code_and_deletes_its_sandbox(start, server):
    with start("echo out; echo err >&2; echo $CI; env | grep -c SANDBOX_SERVER; exit 7\n") as step:
        out, err = step.communicate(timeout=120)
    assert (step.returncode, out, err) == (7, "out\ntrue\n0\n", "err\n")
    assert sandboxes(server) == []


def test_ci_recipe__a_cancelled_job_leaves_no_sandbox(start, server):
    with start("echo begun; sleep 1000\n") as step:
        assert step.stdout.readline() == "begun\n"
        assert len(sandboxes(server)) == 1
        os.killpg(step.pid, signal.SIGTERM)
        step.communicate(timeout=120)
    assert step.returncode in {143, -signal.SIGTERM}
    assert sandboxes(server) == []


def test_ci_recipe__the_workflow_takes_server_and_key_from_outside():
    workflow = (RECIPE / "test-in-a-sandbox.yml").read_text()
    assert re.findall(r"- run: (.*)", workflow)[-1] == ".ci/run-in-sandbox 'make test'"
    assert set(re.findall(r"^      (\w+): \${{ \w+\.\1 }}$", workflow, re.MULTILINE)) == {
        "SANDBOX_SERVER_URL",
        "SANDBOX_SERVER_API_KEY",
    }
