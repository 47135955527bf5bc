import asyncio
import os
import re
import shlex
from asyncio.subprocess import DEVNULL, PIPE
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox_engine.images.certificates import write_certificates
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.system.errors import CannotRun

Progress = Callable[[str], None]

# Own mount and pid namespaces: when the engine ends, the build ends with all maintainer scripts,
# and no mount remains.
_CONFINED = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
)

# The namespace starts with a copy of all mounts. Mounts of sandboxes' disks would keep the disks in
# use during the build and prevent those sandboxes from resuming.
_WITHOUT_DISKS = """
tree=$1
shift
while read -r device target type rest; do
    case "$tree/" in "$target"/*) continue ;; esac
    case "$target $device $type" in /*/*/*" /dev/loop"*|/*/*/*" overlay") umount -l "$target" ;; esac
done </proc/mounts 2>/dev/null
exec "$@"
"""

_DPKG_OPTIONS = (
    "force-unsafe-io",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
    "path-exclude=/usr/share/man/*",
    # the marker that makes Debian's pip refuse system-wide installs
    "path-exclude=/usr/lib/python3*/EXTERNALLY-MANAGED",
)

_ACCOUNT_HOOKS = (
    'chroot "$1" groupadd --gid 1000 user',
    'chroot "$1" useradd --uid 1000 --gid 1000 --groups sudo --create-home --shell /bin/bash user',
)

_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy")
_PHASE = re.compile(r"I: (\w+ing .+)\.\.\.")
_LINES_OF_LOG = 30


async def bootstrap(recipe: BaseRecipe, directory: Path, *, lock: int, progress: Progress) -> Path:
    """Install the recipe's packages and account into an empty directory.

    All processes keep the descriptor `lock` open.
    """
    inputs, tree = directory / "inputs", directory / "tree"
    certificates = inputs / "certificates"
    certificates.mkdir(parents=True)
    tree.mkdir()
    scratch = directory / "scratch"
    scratch.mkdir()
    write_certificates(recipe.certificates, certificates)
    command = _mmdebstrap(recipe, tree, certificates=certificates, mirrors=_mirrors(recipe, inputs))
    await _run(confined(command, tree), scratch=scratch, lock=lock, progress=progress)
    return tree


def _mirrors(recipe: BaseRecipe, inputs: Path) -> list[str]:
    """Pass one-line sources as arguments and others as files, as mmdebstrap requires."""
    mirrors = []
    for number, source in enumerate(recipe.sources):
        if source.startswith("deb "):
            mirrors.append(source)
        else:
            path = inputs / f"{number}.sources"
            path.write_text(source)
            mirrors.append(str(path))
    return mirrors


def _mmdebstrap(
    recipe: BaseRecipe, tree: Path, *, certificates: Path, mirrors: list[str]
) -> list[str]:
    trusted = '"$1"/usr/local/share/ca-certificates'
    copy = f"mkdir -p {trusted} && cp -r {shlex.quote(str(certificates))}/. {trusted}"
    return [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        f"--include={','.join(recipe.packages)}",
        *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
        *(f"--aptopt={option}" for option in recipe.apt_options),
        f"--setup-hook={copy}",  # before ca-certificates is installed, which picks them up
        *(f"--customize-hook={hook}" for hook in _ACCOUNT_HOOKS),
        recipe.suite,
        str(tree),
        *mirrors,
    ]


def confined(command: Sequence[str], tree: Path) -> list[str]:
    """Run a command on the tree in namespaces that leave no mounts or processes."""
    return [*_CONFINED, "sh", "-c", _WITHOUT_DISKS, "sh", str(tree), *command]


async def _run(command: list[str], *, scratch: Path, lock: int, progress: Progress) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        # Scratch files of a killed build are left where the next start removes them.
        env=program_environment(proxies=True) | {"TMPDIR": str(scratch)},
        pass_fds=(lock,),
        limit=1 << 20,
    )
    assert process.stderr is not None
    log = deque[str](maxlen=_LINES_OF_LOG)
    try:
        async for line in process.stderr:
            text = line.decode(errors="replace").rstrip()
            if phase := _PHASE.fullmatch(text):
                progress(phase[1])
            elif not text.startswith("I: "):
                log.append(text)
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status != 0:
        raise CannotRun("\n".join(("Building the base image failed.", *log)))


def program_environment(*, proxies: bool) -> dict[str, str]:
    """Return the environment for a program, without the engine's secrets."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    names = [name for name in os.environ if proxies and name.lower() in _PROXY_VARIABLES]
    return {"PATH": path, "LC_ALL": "C.UTF-8"} | {name: os.environ[name] for name in names}
