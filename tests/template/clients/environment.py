"""An environment for langchain-mcp-adapters, which cannot be in one with the newer `mcp` of ours."""

import subprocess
import sys
from pathlib import Path

from tests.engine.process import REPOSITORY

_WANTED = ("langchain-mcp-adapters==0.3.2", "mcp==1.30.0")
_PLACE = REPOSITORY / ".cache/clients/langchain"


def python_with_langchain() -> Path:
    """Give the interpreter of that environment, which is made once and kept."""
    python = _PLACE / "bin/python"
    ready = _PLACE / "ready"
    if not ready.exists() or ready.read_text().split() != list(_WANTED):
        subprocess.run([sys.executable, "-m", "venv", "--clear", _PLACE], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *_WANTED], check=True)
        ready.write_text("\n".join(_WANTED))
    return python
