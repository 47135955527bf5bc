import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from sandbox_engine.container.oci_config import HOSTNAME, INIT_PATH
from sandbox_engine.network.naming import GIT_HOST
from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.system.syscalls import MS_NODEV, mount

_HOSTS = f"127.0.0.1\tlocalhost {HOSTNAME}\n::1\tlocalhost ip6-localhost ip6-loopback\n{{gateway}}\t{GIT_HOST}\n"


def mount_overlay(
    layers: Sequence[Path], *, changes: Path, target: Path, files: Mapping[str, str]
) -> None:
    """Mount a sandbox's root: the image's layers, lowest first, below its own changes.

    A root without changes is created with the given files.
    """
    upper, work = changes / "upper", changes / "work"
    if not upper.exists():
        for directory in (upper, work):
            directory.mkdir(mode=0o755)
        os.chown(upper, UID_BASE, UID_BASE)
        _write_files(upper, files)
    with ExitStack() as opened:
        places = [opened.enter_context(closing(_open(layer))) for layer in reversed(layers)]
        # Descriptors instead of paths: the options must fit into a page, which fifty paths do not.
        lower = ":".join(f"/proc/self/fd/{place}" for place in places)
        options = f"lowerdir={lower},upperdir={upper},workdir={work},redirect_dir=on"
        # nodev: a device node in a layer would give access to the host's device to anyone who opens
        # it from outside the sandbox.
        mount("overlay", str(target), "overlay", MS_NODEV, options)


def _open(layer: Path) -> int:
    return os.open(layer, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def write_engine_layer(layer: Path, *, gateway: str) -> None:
    """Create the topmost image layer with the engine's own files."""
    files = {
        "etc/hosts": _HOSTS.format(gateway=gateway),
        "etc/hostname": f"{HOSTNAME}\n",
        "etc/resolv.conf": f"nameserver {gateway}\n",
        INIT_PATH.lstrip("/"): "",
    }
    layer.mkdir(exist_ok=True, mode=0o755)
    os.chown(layer, UID_BASE, UID_BASE)
    _write_files(layer, files)


def _write_files(tree: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = tree / name
        for directory in reversed(path.relative_to(tree).parents[:-1]):
            (tree / directory).mkdir(exist_ok=True, mode=0o755)
            os.chown(tree / directory, UID_BASE, UID_BASE)
        path.write_text(text)
        path.chmod(0o644)
        os.chown(path, UID_BASE, UID_BASE)
