import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.release.installation import ROOT, Installation, readable_python


@pytest.fixture(scope="session")
def scratch():
    """Make a directory on disk that every account may enter."""
    with tempfile.TemporaryDirectory(prefix="release-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture(scope="session")
def wheel(scratch):
    """Build the wheel as a packager would: from the sdist alone."""
    sdists, wheels = scratch / "sdists", scratch / "wheels"
    hatchling = [sys.executable, "-m", "hatchling", "build", "--target", "sdist"]
    subprocess.run([*hatchling, "--directory", sdists], cwd=ROOT, check=True)
    (sdist,) = sdists.iterdir()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", wheels, sdist], cwd=scratch, check=True)
    (wheel,) = wheels.iterdir()
    return wheel


@pytest.fixture(scope="session")
def installation(scratch, wheel):
    """Install it into an empty environment, with the versions that we know it to work with."""
    python = readable_python()
    environment = scratch / "environment"
    subprocess.run([python, "-m", "venv", environment], check=True)
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, wheel], check=True)
    return Installation(environment)
