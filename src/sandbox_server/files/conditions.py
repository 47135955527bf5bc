"""Conditional requests and ranges (RFC 9110)."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from sandbox_server.domain.errors import FileChanged, RangeOutside
from sandbox_server.domain.files import Entry
from sandbox_server.providers.protocol.transfers import ByteRange

_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*")


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditional headers of a request."""

    if_match: str | None = None
    if_none_match: str | None = None
    if_modified_since: str | None = None
    if_unmodified_since: str | None = None
    if_range: str | None = None
    range: str | None = None

    def require(self, path: str, found: Entry | None) -> None:
        """Raise `FileChanged` unless the file is the expected version."""
        etag = None if found is None else found.etag
        if self.if_match is not None:
            fails = not _matches(self.if_match, etag, weakly=False)
        else:
            fails = found is not None and _is_later(found, self.if_unmodified_since)
        if fails:
            raise FileChanged(path, etag=etag)

    def require_absent(self, path: str, found: Entry | None) -> None:
        """Raise `FileChanged` if the version exists that must not be overwritten."""
        etag = None if found is None else found.etag
        if self.if_none_match is not None and _matches(self.if_none_match, etag, weakly=True):
            raise FileChanged(path, etag=etag)

    def is_known(self, found: Entry) -> bool:
        """Return whether the client already has this version."""
        if self.if_none_match is not None:
            return _matches(self.if_none_match, found.etag, weakly=True)
        since = _instant(self.if_modified_since)
        return since is not None and found.modified_at <= since

    def part_of(self, found: Entry) -> ByteRange | None:
        """Select the range to send; None is the whole file."""
        if self.range is None or not self._applies_range(found):
            return None
        match = _RANGE.fullmatch(self.range)
        if match is None or match[1] == match[2] == "":
            return None  # several ranges or an invalid header: a server may send the whole file
        part = _part(match[1], match[2], found.size)
        if part is None:
            return None
        if part.length <= 0:
            raise RangeOutside(found.path, size=found.size)
        return part

    def _applies_range(self, found: Entry) -> bool:
        if self.if_range is None:
            return True
        if self.if_range.startswith(('"', "W/")):
            return self.if_range == found.etag
        return False  # a date in seconds does not identify a version


def _part(first: str, last: str, size: int) -> ByteRange | None:
    if first == "":
        length = min(int(last), size)
        return ByteRange(start=size - length, length=length)
    start, end = int(first), int(last) if last else size - 1
    if last and end < start:
        return None
    return ByteRange(start=start, length=min(end, size - 1) - start + 1)


def _matches(header: str, etag: str | None, *, weakly: bool) -> bool:
    if etag is None:
        return False
    tags = [tag.strip() for tag in header.split(",")]
    if weakly:
        tags = [tag.removeprefix("W/") for tag in tags]
    return tags == ["*"] or etag in tags


def _is_later(found: Entry, header: str | None) -> bool:
    instant = _instant(header)
    return instant is not None and found.modified_at > instant


def _instant(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
