"""Makes any image with a shell one that sandboxes can be made of, by a thin layer on top of it.

What the image has is read and resolved as the sandbox itself would see it, below the image's root;
what is written goes to a directory of our own. So no link of an image leads anybody anywhere.
"""

import hashlib
import stat
from pathlib import Path

from sandbox_engine.images.adaptation.account import add_account
from sandbox_engine.images.adaptation.addition import Addition
from sandbox_engine.images.adaptation.trust import add_certificates
from sandbox_engine.images.certificates import Certificate
from sandbox_engine.rootfs.root import Root
from sandbox_engine.system.errors import ImageRefused

_REVISION = 1
_SHELL = "/bin/sh"
# E2B's SDKs run every command with bash. No link, since busybox does what its name says.
_BASH = "/bin/bash"
_BASH_BY_SHELL = f'#!{_SHELL}\nexec {_SHELL} "$@"\n'.encode()
_DIRECTORIES = {
    **dict.fromkeys(("/dev", "/etc", "/home", "/mnt", "/opt", "/proc", "/run", "/sys"), 0o755),
    **dict.fromkeys(("/usr/local/bin", "/var/lib", "/var/log"), 0o755),
    **dict.fromkeys(("/tmp", "/var/tmp"), 0o1777),  # noqa: S108 - the sandbox's
    "/root": 0o700,
}


def adaptation_digest(layer: Path, certificates: tuple[Certificate, ...]) -> str:
    """Name the layer that `adapt` makes."""
    ingredients = repr((_REVISION, layer.name, certificates))
    return hashlib.sha256(ingredients.encode()).hexdigest()[:32]


def adapt(tree: Path, image: Path, certificates: tuple[Certificate, ...]) -> None:
    """Write into the empty `tree` what the image lacks."""
    root = Root.at(str(image))
    try:
        _require_shell(root)
        addition = Addition(root, tree)
        for path, mode in _DIRECTORIES.items():
            addition.make_directory(path, mode=mode)
        if not _is_program(root, _BASH):
            addition.write(_BASH, _BASH_BY_SHELL, mode=0o755)
        add_account(root, addition, trusting=bool(certificates))
        add_certificates(root, addition, certificates)
    finally:
        root.close()


def _require_shell(root: Root) -> None:
    if not _is_program(root, _SHELL):
        raise ImageRefused(f"The image has no shell: there is no {_SHELL} to run commands with.")


def _is_program(root: Root, path: str) -> bool:
    try:
        status = root.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o111)
