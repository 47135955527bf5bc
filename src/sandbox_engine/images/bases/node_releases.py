import platform
import re
from datetime import timedelta
from pathlib import Path

from sandbox_engine.images import node
from sandbox_engine.images.certificates import TRUST_STORE
from sandbox_engine.images.confinement import Confinement
from sandbox_engine.images.disk_space import DiskSpace
from sandbox_engine.images.node import NodeRelease
from sandbox_engine.images.scratch import Scratch
from sandbox_engine.system.errors import ImageRefused

_TIME = timedelta(minutes=10)
_PLATFORMS = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}
_NPM_FOR_ALL = "npm@10"  # the last version for Node 18 and all later ones
_NPM = "/inputs/lib/node_modules/npm/bin/npm-cli.js"
_FLAGS = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefix=/work")


async def fetch_release(scratch: Scratch, wanted: str, *, room: DiskSpace) -> NodeRelease:
    """Download a Node.js release from npm's registry, which has a package per platform."""
    work = scratch.path / "node"
    work.mkdir()
    package = f"node-{_PLATFORMS.get(platform.machine(), platform.machine())}"
    trusting = ("env", f"NODE_EXTRA_CA_CERTS={TRUST_STORE}")  # node has its own trust store
    command = (
        *trusting,
        "/inputs/bin/node",
        _NPM,
        "install",
        *_FLAGS,
        f"{package}@{wanted}",
        _NPM_FOR_ALL,
    )
    place = Confinement(scratch, work, room, _TIME)
    try:
        done = await place.fetch(*command, inputs=node.package_directory(), stdout_limit=1 << 20)
    except TimeoutError:
        raise ImageRefused(f"The download of Node.js {wanted} timed out.") from None
    if done.returncode != 0:
        raise ImageRefused(
            f"Node.js {wanted} cannot be downloaded from npm: {_reason(done.stderr)}"
        )
    modules = work / "node_modules"
    fetched = NodeRelease(modules / package / "bin/node", modules, modules / package / "include")
    for path in (fetched.binary, modules / "npm", fetched.include):
        _require_no_link(path)
    return fetched


def _require_no_link(path: Path) -> None:
    if path.resolve() != path or not path.exists():
        raise ImageRefused("npm's package is not a release of Node.js.")


def _reason(log: bytes) -> str:
    lines = re.findall(r"npm error (?!A complete log|/)(.+)", log.decode(errors="replace"))
    return " ".join(lines)[:500]
