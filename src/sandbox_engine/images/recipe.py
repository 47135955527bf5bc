import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox_engine.images import node
from sandbox_engine.images.apt import host_options, host_sources, host_suite
from sandbox_engine.images.certificates import Certificate, read_certificates, trust_environment
from sandbox_engine.rootfs.ownership import UID_BASE

_REVISION = 1

_PACKAGES = (
    "attr",
    "apt",
    "ca-certificates",
    "curl",
    "git",
    "iproute2",
    "less",
    "openssh-client",
    "procps",
    "python-is-python3",
    "python3",
    "python3-pip",
    "python3-venv",
    "sudo",
    "unzip",
    "wget",
    "xz-utils",
)

_NO_TRANSLATIONS = 'Acquire::Languages "none";'


@dataclass(frozen=True)
class BaseRecipe:
    """Inputs of a base image; equal recipes make the same image."""

    suite: str
    sources: tuple[str, ...]
    apt_options: tuple[str, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    packages: tuple[str, ...] = _PACKAGES

    @classmethod
    def of_host(cls, *, certificates_dir: Path) -> Self:
        """Build the recipe from this machine's release, package sources and certificates."""
        suite = host_suite()
        return cls(
            suite=suite,
            sources=host_sources(suite),
            apt_options=(_NO_TRANSLATIONS, *host_options()),
            certificates=read_certificates(certificates_dir),
        )

    @property
    def digest(self) -> str:
        """Digest of everything the image is made of: 16 hex digits."""
        ingredients = (_REVISION, UID_BASE, node.version(), repr(self))
        return hashlib.sha256(repr(ingredients).encode()).hexdigest()[:16]

    @property
    def env(self) -> Mapping[str, str]:
        """Environment of every command in sandboxes of this image."""
        return {"LANG": "C.UTF-8", **trust_environment(self.certificates)}
