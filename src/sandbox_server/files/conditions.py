"""What requests want a file to be, or to be sent of it; after RFC 9110."""

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
    """The conditional headers of a request, as they were sent."""

    if_match: str | None = None
    if_none_match: str | None = None
    if_modified_since: str | None = None
    if_unmodified_since: str | None = None
    if_range: str | None = None
    range: str | None = None

    def require(self, path: str, found: Entry | None) -> None:
        """Refuse where the file is another version than the request is about."""
        etag = None if found is None else found.etag
        if self.if_match is not None:
            fails = not _matches(self.if_match, etag, weakly=False)
        else:
            fails = found is not None and _is_later(found, self.if_unmodified_since)
        if fails:
            raise FileChanged(path, etag=etag)

    def require_absent(self, path: str, found: Entry | None) -> None:
        """Refuse to write a version that the request says is there already, or any."""
        etag = None if found is None else found.etag
        if self.if_none_match is not None and _matches(self.if_none_match, etag, weakly=True):
            raise FileChanged(path, etag=etag)

    def is_known(self, found: Entry) -> bool:
        """Tell whether who asks has this version already."""
        if self.if_none_match is not None:
            return _matches(self.if_none_match, found.etag, weakly=True)
        since = _instant(self.if_modified_since)
        return since is not None and found.modified_at <= since

    def part_of(self, found: Entry) -> ByteRange | None:
        """Choose what to send of a file; None is all of it."""
        if self.range is None or not self._applies_range(found):
            return None
        asked = _RANGE.fullmatch(self.range)
        if asked is None or asked[1] == asked[2] == "":
            return None  # several ranges, or none: nobody has to be sent only parts
        part = _part(asked[1], asked[2], found.size)
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
        return False  # a time to the second does not tell versions apart


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
    named = [one.strip() for one in header.split(",")]
    if weakly:
        named = [one.removeprefix("W/") for one in named]
    return named == ["*"] or etag in named


def _is_later(found: Entry, header: str | None) -> bool:
    instant = _instant(header)
    return instant is not None and found.modified_at > instant


def _instant(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
