"""Files of web pages: read once, with ETags, compressed for browsers that accept it."""

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import Request, Response

READING = ["GET", "HEAD"]
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
}
_WORTH_COMPRESSING = 1024
# Revalidated on every load: a page must not mix files of two versions.
_REVALIDATED = "no-cache"
IMMUTABLE = "public, max-age=31536000, immutable"
"""For files whose names contain a hash of their content."""

# Only scripts and styles from our own files: names and output of sandboxes cannot inject code.
_SCRIPTS = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'; "
)


@dataclass(frozen=True)
class Asset:
    """A file of a page, with an ETag of its content."""

    content: bytes
    media_type: str
    etag: str
    compressed: bytes | None


def read_assets(directory: Traversable) -> Mapping[str, Asset]:
    """Read all files below a directory, by their paths in it."""
    return dict(_read(directory))


def answer(
    request: Request, asset: Asset, *, policy: str, cache_control: str = _REVALIDATED
) -> Response:
    """Respond with a file, or that the browser's copy is current."""
    headers = {
        "Cache-Control": cache_control,
        "Content-Security-Policy": policy,
        "Cross-Origin-Opener-Policy": "same-origin",
        "ETag": asset.etag,
        "Vary": "Accept-Encoding",
    }
    if asset.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    content = asset.content
    if asset.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        content = asset.compressed
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=asset.media_type, headers=headers)


def find_page_file(name: str) -> Asset | None:
    """Find a file of the pages; third-party files are in `vendor`, if they were installed."""
    return _page_files().get(name)


def answer_page_file(request: Request, file: Asset, *, framed_by: tuple[str, ...] = ()) -> Response:
    """Respond with a file of the pages; no other page can frame it unless it is named."""
    ancestors = " ".join(framed_by) or "'none'"
    return answer(request, file, policy=f"{_SCRIPTS}frame-ancestors {ancestors}")


@cache
def _page_files() -> Mapping[str, Asset]:
    return read_assets(files("sandbox_server").joinpath("web", "page"))


def _read(directory: Traversable, above: str = "") -> Iterator[tuple[str, Asset]]:
    for entry in directory.iterdir():
        name = f"{above}{entry.name}"
        if entry.is_dir():
            yield from _read(entry, f"{name}/")
        elif media_type := _TYPES.get(f".{entry.name.rpartition('.')[2]}"):
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield name, Asset(content, media_type, etag, _compress(content))


def _compress(content: bytes) -> bytes | None:
    return gzip.compress(content, mtime=0) if len(content) > _WORTH_COMPRESSING else None
