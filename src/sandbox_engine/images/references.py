import re
from dataclasses import dataclass, replace
from typing import Self

from sandbox_engine.system.errors import InvalidRequest

DOCKER_HUB = "docker.io"
_ALIASES = {"index.docker.io"}

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = re.compile(rf"(?:{_HOST}|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{{1,5}}))?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_NAME = 255
_LAST_PORT = 65535


@dataclass(frozen=True)
class Reference:
    """Reference of an image: registry, repository, and a tag or digest."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a reference as `docker pull` does."""
        name, _, digest = text.partition("@")
        registry, repository = _split_registry(name)
        repository, _, tag = repository.partition(":")
        if registry == DOCKER_HUB and "/" not in repository:
            repository = f"library/{repository}"
        reference = cls(registry, repository, tag or None, digest or None)
        if not reference.is_valid or text.endswith((":", "@")):
            raise InvalidRequest(f"invalid image reference: {text[:_LONGEST_NAME]!r}")
        return reference if tag or digest else replace(reference, tag="latest")

    @property
    def is_valid(self) -> bool:
        registry = _REGISTRY.fullmatch(self.registry)
        return (
            registry is not None
            and int(registry["port"] or 0) <= _LAST_PORT
            and _NAME.fullmatch(self.repository) is not None
            and len(self.name) <= _LONGEST_NAME
            and (self.tag is None or _TAG.fullmatch(self.tag) is not None)
            and (self.digest is None or _DIGEST.fullmatch(self.digest) is not None)
        )

    @property
    def name(self) -> str:
        return f"{self.registry}/{self.repository}"

    def at(self, digest: str) -> Self:
        """Return a reference to this digest in the same repository."""
        return replace(self, tag=None, digest=digest)

    def __str__(self) -> str:
        """Format the full reference; a digest takes precedence over a tag."""
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag}"


def _split_registry(name: str) -> tuple[str, str]:
    """Tell a registry from the first part of a repository: it contains a dot or a port."""
    first, slash, rest = name.partition("/")
    is_registry = slash and (
        set(first) & set(".:") or first == "localhost" or first != first.lower()
    )
    if not is_registry:
        return DOCKER_HUB, name
    return (DOCKER_HUB if first in _ALIASES else first), rest
