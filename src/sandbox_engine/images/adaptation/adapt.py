"""Makes an image with a shell usable for sandboxes by a thin layer on top of it.

The image is read and resolved as the sandbox would see it, below the image's root; changes are
written to a separate directory. Links of an image cannot lead outside.
"""

import hashlib
import stat
from pathlib import Path

from sandbox_engine.images.adaptation.account import add_account
from sandbox_engine.images.adaptation.added_layer import AddedLayer
from sandbox_engine.images.adaptation.trusted_certificates import add_certificates
from sandbox_engine.images.certificates import Certificate
from sandbox_engine.rootfs.root import Root
from sandbox_engine.system.errors import ImageRefused

_REVISION = 1
_SHELL = "/bin/sh"
# E2B's SDKs run every command with bash. A script, not a link: busybox decides by its name.
_BASH = "/bin/bash"
_BASH_BY_SHELL = f'#!{_SHELL}\nexec {_SHELL} "$@"\n'.encode()
_DIRECTORIES = {
    **dict.fromkeys(("/dev", "/etc", "/home", "/mnt", "/opt", "/proc", "/run", "/sys"), 0o755),
    **dict.fromkeys(("/usr/local/bin", "/var/lib", "/var/log"), 0o755),
    **dict.fromkeys(("/tmp", "/var/tmp"), 0o1777),  # noqa: S108 - the sandbox's
    "/root": 0o700,
}


def adaptation_digest(layer: Path, certificates: tuple[Certificate, ...]) -> str:
    """Return the name of the layer that `adapt` makes."""
    ingredients = repr((_REVISION, layer.name, certificates))
    return hashlib.sha256(ingredients.encode()).hexdigest()[:32]


def adapt(tree: Path, image: Path, certificates: tuple[Certificate, ...]) -> None:
    """Write what the image lacks into the empty `tree`."""
    root = Root.at(str(image))
    try:
        _require_shell(root)
        added = AddedLayer(root, tree)
        for path, mode in _DIRECTORIES.items():
            added.make_directory(path, mode=mode)
        if not _is_program(root, _BASH):
            added.write(_BASH, _BASH_BY_SHELL, mode=0o755)
        add_account(root, added, trusting=bool(certificates))
        add_certificates(root, added, certificates)
    finally:
        root.close()


def _require_shell(root: Root) -> None:
    if not _is_program(root, _SHELL):
        raise ImageRefused(f"The image has no shell: {_SHELL} is needed to run commands.")


def _is_program(root: Root, path: str) -> bool:
    try:
        status = root.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o111)
