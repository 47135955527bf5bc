from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Self


@dataclass(frozen=True)
class FileVersion:
    """Metadata of one version of a file, identified by `etag`."""

    size: int | None
    etag: str | None
    modified_at: datetime | None

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], *, size: int | None = None) -> Self:
        modified = headers.get("last-modified")
        return cls(
            size=size,
            etag=headers.get("etag"),
            modified_at=None if modified is None else parsedate_to_datetime(modified),
        )


def range_header(offset: int, limit: int | None) -> dict[str, str]:
    """Build the Range header for a part of a file."""
    if limit is not None:
        return {"Range": f"bytes={offset}-{offset + limit - 1}"}
    return {"Range": f"bytes={offset}-"} if offset else {}
