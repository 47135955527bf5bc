"""Official images rebuilt from a distribution's packages when no registry is reachable."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox_engine.images import node
from sandbox_engine.images.apt import host_vendor, sources_of
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.images.references import DOCKER_HUB, Reference
from sandbox_engine.system.errors import ImageRefused

_DEBIAN = {
    **{name: name for name in ("stable", "oldstable", "testing", "unstable", "sid")},
    **{name: name for name in ("bullseye", "bookworm", "trixie")},
    "latest": "stable",
    "11": "bullseye",
    "12": "bookworm",
    "13": "trixie",
}
_UBUNTU = {
    **{name: name for name in ("focal", "jammy", "noble")},
    "latest": "noble",
    "20.04": "focal",
    "22.04": "jammy",
    "24.04": "noble",
}
_PYTHON = {"3.9": "bullseye", "3.11": "bookworm", "3.13": "trixie"}
_ANY_PYTHON = {"3", "latest"}
_NODE = re.compile(r"lts|latest|current|\d+(?:\.\d+){0,2}")

# The packages in E2B's images, as far as they make sense in a container.
_EVERYWHERE = ("apt", "ca-certificates", "curl", "git", "iproute2", "less", "procps", "sudo")
_PYTHON_ITSELF = ("python-is-python3", "python3", "python3-pip", "python3-venv")
_TO_COMPILE = ("build-essential", "python3", "python3-dev", "unzip", "wget", "xz-utils")


@dataclass(frozen=True)
class Distribution:
    """The packages of a release; `node` is an additional Node.js version of npm, or None."""

    recipe: BaseRecipe
    node: str | None = None

    @property
    def digest(self) -> str:
        """Digest of everything the image is made of: 32 hex digits."""
        ingredients = repr((self.recipe.digest, self.node))
        return hashlib.sha256(ingredients.encode()).hexdigest()[:32]


class _Unavailable(Exception):
    """The version is not among a distribution's packages."""


def find_distribution(reference: Reference, host: BaseRecipe) -> Distribution | None:
    """Find how to build an official image; None for other images."""
    make = _MAKERS.get(reference.repository)
    if make is None or reference.registry != DOCKER_HUB or reference.tag is None:
        return None
    words = reference.tag.split("-")
    names = [word for word in words if word != "slim"] or ["latest"]
    try:
        distribution = make(host, names, "slim" in words)
        _require_keyring(distribution.recipe)
    except _Unavailable as reason:
        raise ImageRefused(
            f"{reference} cannot be built from packages either: {reason} "
            "Run a registry with the image, or give this machine access to one."
        ) from None
    return distribution


def _debian(host: BaseRecipe, names: Sequence[str], _is_slim: bool) -> Distribution:  # noqa: FBT001
    return Distribution(_recipe(host, "debian", _pick(_DEBIAN, names), _EVERYWHERE))


def _ubuntu(host: BaseRecipe, names: Sequence[str], _is_slim: bool) -> Distribution:  # noqa: FBT001
    return Distribution(_recipe(host, "ubuntu", _pick(_UBUNTU, names), _EVERYWHERE))


def _python(host: BaseRecipe, names: Sequence[str], is_slim: bool) -> Distribution:  # noqa: FBT001
    version, suite = _version_and_suite(names)
    if version in _ANY_PYTHON:
        suite = suite or "stable"
    elif suite not in (None, _PYTHON.get(version)):
        raise _Unavailable(f"Debian {suite} has no Python {version}.")
    else:
        suite = _pick(_PYTHON, [version])
    packages = (*_EVERYWHERE, *_PYTHON_ITSELF, *(() if is_slim else _TO_COMPILE))
    return Distribution(_recipe(host, "debian", suite, packages))


def _node(host: BaseRecipe, names: Sequence[str], is_slim: bool) -> Distribution:  # noqa: FBT001
    version, suite = _version_and_suite(names)
    if not _NODE.fullmatch(version):
        raise _Unavailable(f"{version!r} is not a version of Node.js.")
    packages = (*_EVERYWHERE, *(() if is_slim else _TO_COMPILE))
    recipe = _recipe(host, "debian", suite or "stable", packages)
    if node.is_own(version):
        return Distribution(recipe, node.version())
    return Distribution(recipe, "latest" if version == "current" else version)


_MAKERS: dict[str, Callable[[BaseRecipe, Sequence[str], bool], Distribution]] = {
    "library/debian": _debian,
    "library/ubuntu": _ubuntu,
    "library/python": _python,
    "library/node": _node,
}


def _pick(suites: dict[str, str], names: Sequence[str]) -> str:
    suite = suites.get(names[0]) if len(names) == 1 else None
    if suite is None:
        raise _Unavailable(f"Available: {', '.join(suites)}.")
    return suite


def _version_and_suite(names: Sequence[str]) -> tuple[str, str | None]:
    suites = [_DEBIAN[name] for name in names if name in _DEBIAN and name.isalpha()]
    versions = [name for name in names if not (name in _DEBIAN and name.isalpha())]
    if len(suites) > 1 or len(versions) > 1:
        raise _Unavailable(f"There is no variant {'-'.join(names)!r}.")
    named = suites[0] if suites and names != ["latest"] else None
    return (versions[0] if versions else "latest"), named


def _recipe(host: BaseRecipe, vendor: str, suite: str, packages: Sequence[str]) -> BaseRecipe:
    unique = tuple(sorted(set(packages)))
    sources = sources_of(host.sources, host.suite, suite) if vendor == host_vendor() else ()
    return replace(host, suite=suite, sources=sources, packages=unique)


def _require_keyring(recipe: BaseRecipe) -> None:
    """Fail early if the keys of a vendor's release are missing, which mmdebstrap cannot check."""
    is_of_ubuntu = recipe.suite in _UBUNTU.values()
    vendor = "ubuntu" if is_of_ubuntu else "debian"
    package = f"{vendor}-archive-keyring"
    is_there = Path(f"/usr/share/keyrings/{package}.gpg").exists()
    if vendor != host_vendor() and not is_there:
        raise _Unavailable(f"This machine lacks the keys of {vendor.title()} ({package}).")
