"""Swap for the tests that need some."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox_engine.machine import resources


@contextmanager
def some_swap(size: int) -> Iterator[None]:
    """Make sure that this machine has swap until the block ends; skip the test where it cannot."""
    if resources.memory().swap_free >= size:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="engine-swap-", dir="/var/tmp") as directory:
        file = Path(directory) / "swap"
        with file.open("wb") as swap:
            file.chmod(0o600)
            os.posix_fallocate(swap.fileno(), 0, size)
        subprocess.run(["mkswap", "-q", file], check=True)
        if subprocess.run(["swapon", file], capture_output=True, check=False).returncode != 0:
            pytest.skip("this machine takes no swap here")
        try:
            yield
        finally:
            subprocess.run(["swapoff", file], check=True)
