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
    """A template's id or name, and where one was given the tag of one of its builds."""

    name: str
    tag: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `name` or `name:tag`, whatever the case."""
        name, colon, tag = text.partition(":")
        return cls(_clean_name(name), _clean_tag(tag) if colon else None)

    def __str__(self) -> str:
        return self.name if self.tag is None else f"{self.name}:{self.tag}"


def parse_name(text: str) -> str:
    """Read the name of a template where no tag may follow it."""
    reference = Reference.parse(text)
    if reference.tag is not None:
        raise InvalidRequest("Template name should not contain a tag, use the 'tags' field instead")
    return reference.name


def parse_tags(texts: Iterable[str]) -> list[str]:
    """Read tags that are to be given or taken; each comes out once, in the order given."""
    tags = list(dict.fromkeys(_clean_tag(text) for text in texts))
    for tag in tags:
        if _is_build_id(tag):
            raise InvalidRequest(f"Invalid tag '{tag}': a tag cannot be a build's id")
    return tags


def _clean_name(text: str) -> str:
    name = text.strip().lower()
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"Invalid template name '{text}': it takes up to 128 letters, digits, hyphens and "
            "underscores, and has no namespace on this engine"
        )
    return name


def _clean_tag(text: str) -> str:
    tag = text.strip().lower()
    if not _TAG.fullmatch(tag):
        raise InvalidRequest(
            f"Invalid tag '{text}': it takes up to 128 letters, digits, hyphens, underscores and dots"
        )
    return tag


def _is_build_id(tag: str) -> bool:
    try:
        UUID(tag)
    except ValueError:
        return False
    return True
