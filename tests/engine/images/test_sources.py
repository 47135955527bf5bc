import subprocess

import pytest

from sandbox_engine.images.sources import confined
from tests.engine.file_systems import small_file_system

pytestmark = pytest.mark.needs_engine


def test_base_build__holds_no_foreign_disks():
    with small_file_system(64) as theirs, small_file_system(64) as own:
        command = confined(["cat", "/proc/self/mounts"], own / "tree")
        seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert str(own) in seen
    assert str(theirs) not in seen
