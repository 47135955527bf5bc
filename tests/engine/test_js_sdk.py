"""The engine as E2B's client for JavaScript finds it."""

import asyncio
import os

import pytest

from tests.engine.engine_process import REPOSITORY
from tests.engine.node_packages import NODE, install

pytestmark = pytest.mark.needs_engine

VERSION = "2.51.0"
STEPS = REPOSITORY / "tests/engine/js"


@pytest.fixture(scope="module")
def modules():
    return install("e2b", VERSION)


@pytest.mark.parametrize(
    "subject",
    [
        "sandboxes",
        "network",
        "snapshots",
        "templates",
        "volumes",
        pytest.param("bases", marks=(pytest.mark.slow, pytest.mark.timeout(600))),
    ],
)
async def test_js_sdk__works_unmodified(engine, modules, subject):
    environment = {
        "PATH": os.environ["PATH"],
        "NODE_PATH": str(modules),
        "E2B_API_KEY": engine.api_key,
        "E2B_API_URL": engine.url,
        "E2B_SANDBOX_URL": engine.url,
        "E2B_VOLUME_API_URL": engine.url,
    }
    running = await asyncio.create_subprocess_exec(
        NODE,
        *("--test", "--test-reporter", "spec", STEPS / f"{subject}.test.cjs"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await running.communicate()
    assert running.returncode == 0, told.decode()
