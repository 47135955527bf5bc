"""The client of Git LFS, as scripts/test-programs unpacks it."""

import os
import shutil
from pathlib import Path

import pytest

_UNPACKED = Path(__file__).parents[3] / ".cache" / "test-programs" / "usr" / "bin"
PATH = f"{os.environ['PATH']}:{_UNPACKED}"
GIT_LFS = shutil.which("git-lfs", path=PATH) or ""

needs_git_lfs = pytest.mark.skipif(not GIT_LFS, reason="run scripts/test-programs: no git-lfs")

FILTER = """\
[filter "lfs"]
	clean = git-lfs clean -- %f
	smudge = git-lfs smudge -- %f
	process = git-lfs filter-process
	required = true
"""
"""What `git lfs install` writes."""
