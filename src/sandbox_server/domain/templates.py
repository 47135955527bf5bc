"""Templates: what they are made of, what they are called here and at providers, and where they are."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

NAME = r"^[a-z0-9_-]{1,128}\Z"
"""E2B's own rule; capitals are taken for small letters."""

BASE = "base"
"""E2B's own, which every provider has."""

AGENT = "agent"
"""The one that sandboxes are made from where nobody says otherwise."""

_WITH_SERVICES = frozenset({AGENT, "agent-full", "relay-workspace"})

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
    """What a template is made of: one of the first three, and then the steps."""

    dockerfile: str | None = None
    from_image: str | None = None
    from_template: str | None = None
    """As the provider calls it."""
    steps: Sequence[Step] = ()
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    start_command: str | None = None
    ready_command: str | None = None
    cpu_count: int | None = None
    memory_mb: int | None = None

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read what `document` gave."""
        steps = [Step(StepKind(one["kind"]), one["argument"]) for one in document["steps"]]
        return cls(**{**document, "steps": steps})


@dataclass(frozen=True, kw_only=True)
class Size:
    """What sandboxes of a template get; None is unknown."""

    cpu_count: int | None = None
    memory_mb: int | None = None

    def lacks(self, asked: Mapping[str, Any]) -> bool:
        """Tell whether more is asked for than there is."""
        return any(
            has is not None and asked.get(name) is not None and asked[name] > has
            for name, has in asdict(self).items()
        )

    def document(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class KnownTemplate:
    """A template that is on record, and the backends that sandboxes of it may go to."""

    id: str
    name: str
    is_own: bool
    sizes: Mapping[str, Size]
    has_services: bool = False
    """Whether sandboxes of it have the services that read their settings from a file."""
    building: frozenset[str] = frozenset()
    """The backends that have none that could be used, and are about to."""


def name_at_provider(template_id: str) -> str:
    """Give the name under which a tenant's template is built: the name it has here may be another tenant's too."""
    return _PREFIX + template_id


def is_made_by_a_server(name: str) -> bool:
    """Tell whether it is such a name, be it of this installation or of another with the same key."""
    return name.startswith(_PREFIX)


def is_called_as_with_services(name: str) -> bool:
    """Tell whether it is called as those that we ship: their services read their settings from a file."""
    return name in _WITH_SERVICES


@dataclass(frozen=True, kw_only=True)
class TemplateReference:
    """A template or snapshot as callers name it: `name`, `name:tag` or `namespace/name:tag`, in lower case."""

    name: str
    namespace: str | None = None
    tag: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read a reference; None is anything that providers could read in more than one way."""
        if not text.isascii() or not (found := _REFERENCE.fullmatch(text.lower())):
            return None
        return cls(**found.groupdict())

    def __str__(self) -> str:
        namespace = "" if self.namespace is None else f"{self.namespace}/"
        return namespace + (self.name if self.tag is None else f"{self.name}:{self.tag}")

    @property
    def is_plain(self) -> bool:
        """Whether it names the usual version of something that has no namespace."""
        return self.namespace is None and self.tag in (None, _DEFAULT_TAG)

    @property
    def is_generated(self) -> bool:
        """Whether the name contains an id, which only records can attribute to a tenant."""
        return is_made_by_a_server(self.name) or _GENERATED.search(self.name) is not None

    @property
    def id(self) -> str:
        """The name without the prefix that servers give to the templates they build."""
        return self.name.removeprefix(_PREFIX)
