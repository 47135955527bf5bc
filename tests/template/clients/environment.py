"""An environment for langchain-mcp-adapters, which cannot be in one with the newer `mcp` of ours."""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

from tests.engine.engine_process import REPOSITORY
from tests.template.clients.hands import Hands, Site

_WANTED = ("langchain-mcp-adapters==0.3.2", "mcp==1.30.0")
_LONGEST_S = 600
_PLACE = REPOSITORY / ".cache/clients/langchain"


def work_with_langchain(
    work: Callable[[Hands], Awaitable[None]], site: Site
) -> tuple[set[str], set[str]]:
    """Have langchain's client do a piece of work; gives which tools it was shown and which it used."""
    program = [str(_python()), "-m", "tests.template.clients.langchain", work.__name__]
    done = subprocess.run(
        [*program, json.dumps(asdict(site))],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return set(told["listed"]), set(told["used"])


def _python() -> Path:
    """Give the interpreter of that environment, which is made once and kept."""
    python = _PLACE / "bin/python"
    ready = _PLACE / "ready"
    if not ready.exists() or ready.read_text().split() != list(_WANTED):
        subprocess.run([sys.executable, "-m", "venv", "--clear", _PLACE], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *_WANTED], check=True)
        ready.write_text("\n".join(_WANTED))
    return python
