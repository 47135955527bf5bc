"""Range and conditional requests for files (RFC 9110)."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import NamedTuple

_NUMBER = re.compile(r"[0-9]{1,18}")


class Range(NamedTuple):
    """A range of bytes."""

    start: int
    length: int

    def content_range(self, size: int) -> str:
        return f"bytes {self.start}-{self.start + self.length - 1}/{size}"


class InvalidRange(ValueError):
    """The header is malformed."""


class NoOverlap(InvalidRange):
    """No requested range overlaps the file."""


class PreconditionResult(Enum):
    """Result of a request's preconditions."""

    PROCEED = auto()
    NOT_MODIFIED = auto()
    FAILED = auto()


def is_conditional(headers: Mapping[str, str]) -> bool:
    """Return whether the request has Range or conditional headers."""
    names = ("range", "if-range", "if-modified-since", "if-none-match")
    return any(name in headers for name in names)


def evaluate(headers: Mapping[str, str], modified: datetime) -> PreconditionResult:
    """Evaluate the preconditions of a file request; files have a time but no entity tag."""
    unmodified_since = _date(headers.get("if-unmodified-since"))
    if "if-match" in headers:
        if headers["if-match"].strip() != "*":
            return PreconditionResult.FAILED
    elif unmodified_since is not None and modified > unmodified_since:
        return PreconditionResult.FAILED
    if (none_match := headers.get("if-none-match")) is not None:
        return (
            PreconditionResult.NOT_MODIFIED
            if none_match.strip() == "*"
            else PreconditionResult.PROCEED
        )
    modified_since = _date(headers.get("if-modified-since"))
    if modified_since is not None and modified <= modified_since:
        return PreconditionResult.NOT_MODIFIED
    return PreconditionResult.PROCEED


def ranges(headers: Mapping[str, str], *, size: int, modified: datetime) -> list[Range]:
    """Parse the requested ranges; none stands for the whole file."""
    header = headers.get("range", "")
    if not header:
        return []
    if "if-range" in headers and _date(headers["if-range"]) != modified:
        return []
    try:
        found = _parse(header, size)
    except NoOverlap:
        if size:
            raise
        return []
    # Ranges larger than the file together are a costly request for the whole file.
    return found if sum(part.length for part in found) <= size else []


def _parse(header: str, size: int) -> list[Range]:
    unit, equals, specs = header.partition("=")
    if unit != "bytes" or not equals:
        raise InvalidRange("invalid range")
    wanted = [spec.strip() for spec in specs.split(",") if spec.strip()]
    found = [part for spec in wanted if (part := _part(spec, size)) is not None]
    if wanted and not found:
        raise NoOverlap("invalid range: failed to overlap")
    return found


def _part(spec: str, size: int) -> Range | None:
    first, dash, last = (side.strip() for side in spec.partition("-"))
    if not dash or not all(_NUMBER.fullmatch(side) for side in (first, last) if side):
        raise InvalidRange("invalid range")
    if not first:
        if not last:
            raise InvalidRange("invalid range")
        length = min(int(last), size)
        return Range(size - length, length) if length else None
    start = int(first)
    end = int(last) if last else size - 1
    if last and end < start:
        raise InvalidRange("invalid range")
    return Range(start, min(end, size - 1) - start + 1) if start < size else None


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
