"""Templates: definitions, names here and at providers, and references."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

NAME = r"^[a-z0-9_-]{1,128}\Z"
"""E2B's rule; names are case-insensitive."""

BASE = "base"
"""E2B's own template, which every provider has."""

AGENT = "agent"
"""The default template of sandboxes."""

_PREFIX = "sandbox-server-"
_REFERENCE = re.compile(
    r"(?:(?P<namespace>[a-z0-9_-]{1,128})/)?(?P<name>[a-z0-9_-]{1,128})(?::(?P<tag>[a-z0-9._-]{1,128}))?"
)
_DEFAULT_TAG = "default"
# E2B's ids and ours have 20 characters; builds, and templates of other providers, have UUIDs.
_GENERATED = re.compile(
    r"(?<![a-z0-9])(?:[a-z0-9]{20}|[a-f0-9]{8}(?:-?[a-f0-9]{4}){3}-?[a-f0-9]{12})(?![a-z0-9])"
)


class StepKind(StrEnum):
    RUN = "RUN"
    WORKDIR = "WORKDIR"
    USER = "USER"


@dataclass(frozen=True)
class Step:
    kind: StepKind
    argument: str


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The definition of a template: one of the first three fields, and steps."""

    dockerfile: str | None = None
    from_image: str | None = None
    from_template: str | None = None
    """The provider's name of the template."""
    steps: Sequence[Step] = ()
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    start_command: str | None = None
    ready_command: str | None = None
    cpu_count: int | None = None
    memory_mb: int | None = None
    capabilities: Sequence[str] | None = None
    """Capabilities of its sandboxes; None: those of `from_template`."""

    def document(self) -> dict[str, Any]:
        document = asdict(self)
        if self.capabilities is None:  # leaves the digests of bundled templates as they were
            del document["capabilities"]
        return document

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read what `document` gave."""
        steps = [Step(StepKind(step["kind"]), step["argument"]) for step in document["steps"]]
        return cls(**{**document, "steps": steps})


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a template's sandboxes; None is unknown."""

    cpu_count: int | None = None
    memory_mb: int | None = None

    def lacks(self, asked: Mapping[str, Any]) -> bool:
        """Whether more is requested than available."""
        return any(
            has is not None and asked.get(name) is not None and asked[name] > has
            for name, has in asdict(self).items()
        )

    def document(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class KnownTemplate:
    """A recorded template, with the backends that have it."""

    id: str
    name: str
    is_own: bool
    sizes: Mapping[str, Size]
    has_services: bool = False
    """Whether its sandboxes have services that read a settings file."""
    capabilities: frozenset[str] = frozenset()
    building: frozenset[str] = frozenset()
    """The backends that are building the template and have no usable build yet."""


def name_at_provider(template_id: str) -> str:
    """Build the provider's name of a tenant's template; its name here is unique per tenant only."""
    return _PREFIX + template_id


def is_made_by_a_server(name: str) -> bool:
    """Whether a server chose this name, in this installation or another one with the same key."""
    return name.startswith(_PREFIX)


@dataclass(frozen=True, kw_only=True)
class TemplateReference:
    """A reference to a template or snapshot: `name`, `name:tag` or `namespace/name:tag`, in lower case."""

    name: str
    namespace: str | None = None
    tag: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse a reference; None for text that providers could read in more than one way."""
        if not text.isascii() or not (found := _REFERENCE.fullmatch(text.lower())):
            return None
        return cls(**found.groupdict())

    def __str__(self) -> str:
        namespace = "" if self.namespace is None else f"{self.namespace}/"
        return namespace + (self.name if self.tag is None else f"{self.name}:{self.tag}")

    @property
    def is_plain(self) -> bool:
        """Whether it has no namespace, and no tag but the default one."""
        return self.namespace is None and self.tag in (None, _DEFAULT_TAG)

    @property
    def is_generated(self) -> bool:
        """Whether the name contains an id; only records can attribute those to tenants."""
        return is_made_by_a_server(self.name) or _GENERATED.search(self.name) is not None

    @property
    def id(self) -> str:
        """The name without the prefix of templates that servers build."""
        return self.name.removeprefix(_PREFIX)
