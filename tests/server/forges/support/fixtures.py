import os
from pathlib import Path
from typing import Any

import pytest

from tests.server.forges.support.github_emulator import PROGRAMS
from tests.server.forges.support.world import forge_world_at


@pytest.fixture
def make_forge_world(run_services, tmp_path):
    """Make forges; keyword arguments change the App, for example its `permissions`."""
    if not (PROGRAMS / "emulate").exists():
        lacking = pytest.fail if os.environ.get("REQUIRE_ENGINE") == "1" else pytest.skip
        lacking("run scripts/test-programs: the emulated GitHub is not installed")
    port = int(run_services.service("github-emulators")["port"])
    made: list[Any] = []

    def make(**app):
        world = forge_world_at(port, Path(tmp_path) / f"forge-{len(made)}", **app)
        made.append(world)
        return world.__enter__()

    yield make
    for world in reversed(made):
        world.__exit__(None, None, None)


@pytest.fixture
def forge_world(make_forge_world):
    """Make an emulated GitHub with a git server and the repository `acme/widgets`."""
    return make_forge_world()
