import os
import stat
from collections.abc import Iterator
from pathlib import Path

from sandbox_engine.images.apt import is_usable_in_sandbox, without_credentials
from sandbox_engine.images.node import NodeRelease, install_node
from sandbox_engine.images.recipe import BaseRecipe

_COPIED_FROM_HOST = ("etc/resolv.conf", "etc/hostname", "etc/apt/apt.conf.d/99mmdebstrap")


def configure_tree(tree: Path, recipe: BaseRecipe, *, node: NodeRelease | None) -> None:
    """Configure a Debian tree for sandboxes."""
    for name in _COPIED_FROM_HOST:
        (tree / name).unlink(missing_ok=True)
    _write(tree / "etc/apt/apt.conf.d/90host", _apt_options(recipe))
    for sources in _package_sources(tree / "etc/apt"):
        _write(sources, without_credentials(sources.read_text()))
    _write(tree / "etc/environment", _environment(recipe))
    _write(tree / "etc/sudoers.d/user", _sudo_rules(recipe), mode=0o440)
    local = tree / "usr/local"
    if node is not None:
        install_node(local, node)
    _open_to_all(local)


def _package_sources(directory: Path) -> Iterator[Path]:
    yield from directory.glob("sources.list")
    yield from (directory / "sources.list.d").iterdir()


def _apt_options(recipe: BaseRecipe) -> str:
    return "".join(f"{option}\n" for option in recipe.apt_options if is_usable_in_sandbox(option))


def _environment(recipe: BaseRecipe) -> str:
    return "".join(f"{name}={value}\n" for name, value in recipe.env.items())


def _sudo_rules(recipe: BaseRecipe) -> str:
    return f'Defaults env_keep += "{" ".join(recipe.env)}"\nuser ALL=(ALL:ALL) NOPASSWD: ALL\n'


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)


def _open_to_all(directory: Path) -> None:
    """Allow all accounts to install packages without sudo, as on E2B.

    `pip install`, `npm install -g`.
    """
    for parent, _, files, descriptor in os.fwalk(directory):
        os.fchmod(descriptor, 0o777)
        for name in files:
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                path.chmod(stat.S_IMODE(mode) | 0o666 | ((mode & 0o100) and 0o111))
