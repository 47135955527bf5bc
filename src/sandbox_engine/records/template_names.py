import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from sandbox_engine.system.errors import InvalidRequest

DEFAULT_TAG = "default"

_NAME = re.compile(r"[a-z0-9_-]{1,128}")
_TAG = re.compile(r"[a-z0-9._-]{1,128}")


@dataclass(frozen=True)
class Reference:
    """A template's ID or name, with an optional tag."""

    name: str
    tag: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `name` or `name:tag`, ignoring case."""
        name, colon, tag = text.partition(":")
        return cls(_clean_name(name), _clean_tag(tag) if colon else None)

    def __str__(self) -> str:
        return self.name if self.tag is None else f"{self.name}:{self.tag}"


def parse_name(text: str) -> str:
    """Parse a template's name without a tag."""
    reference = Reference.parse(text)
    if reference.tag is not None:
        raise InvalidRequest("Template name should not contain a tag, use the 'tags' field instead")
    return reference.name


def parse_tags(texts: Iterable[str]) -> list[str]:
    """Parse tags, removing duplicates."""
    tags = list(dict.fromkeys(_clean_tag(text) for text in texts))
    for tag in tags:
        if _is_build_id(tag):
            raise InvalidRequest(f"Invalid tag '{tag}': it has the format of a build ID")
    return tags


def _clean_name(text: str) -> str:
    name = text.strip().lower()
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"Invalid template name '{text}': use up to 128 letters, digits, hyphens and "
            "underscores, without a namespace"
        )
    return name


def _clean_tag(text: str) -> str:
    tag = text.strip().lower()
    if not _TAG.fullmatch(tag):
        raise InvalidRequest(
            f"Invalid tag '{text}': use up to 128 letters, digits, hyphens, underscores and dots"
        )
    return tag


def _is_build_id(tag: str) -> bool:
    try:
        UUID(tag)
    except ValueError:
        return False
    return True
