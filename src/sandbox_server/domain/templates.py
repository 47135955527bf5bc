"""Templates: what they are made of, what they are called here and at providers, and where they are."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

NAME = r"^[a-z0-9_-]{1,128}\Z"
"""E2B's own rule; capitals are taken for small letters."""

AGENT = "agent"
"""The one that sandboxes are made from where nobody says otherwise."""

_WITH_SERVICES = frozenset({AGENT, "agent-full", "relay-workspace"})

_PREFIX = "sandbox-server-"
_ID = re.compile(r"(?<![a-z0-9])[a-z0-9]{20}(?![a-z0-9])")


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


def is_called_as_with_services(reference: str) -> bool:
    """Tell whether it is called, in any version, as those that we ship: their services read their settings from a file."""
    return reference.lower().partition(":")[0] in _WITH_SERVICES


def ids_in(reference: str) -> list[str]:
    """Find what may be ids, ours or a provider's, in what a caller gives for a template."""
    return _ID.findall(reference.lower())
