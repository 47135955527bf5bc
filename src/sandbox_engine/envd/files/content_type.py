"""Content-Type and Content-Disposition of a file."""

import codecs
import mimetypes
import posixpath
import re
from urllib.parse import quote

# The built-in table only, so that results do not depend on the machine.
_TYPES = mimetypes.MimeTypes(filenames=())
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

SNIFFED_BYTES = 512
UNKNOWN = "application/octet-stream"


def type_by_name(path: str) -> str | None:
    """Guess the type from the extension."""
    kind, encoding = _TYPES.guess_type(posixpath.basename(path))
    if kind is None or encoding is not None:
        return None
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def type_by_content(head: bytes) -> str:
    """Guess whether a file is text from its first bytes."""
    if head.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)):
        return "text/plain; charset=utf-16"
    return UNKNOWN if _BINARY.search(head[:SNIFFED_BYTES]) else "text/plain; charset=utf-8"


def disposition(path: str) -> str:
    """Build the Content-Disposition header for any file name."""
    name = posixpath.basename(path)
    if _TOKEN.fullmatch(name):
        return f"inline; filename={name}"
    if name.isascii() and name.isprintable():
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        return f'inline; filename="{quoted}"'
    return f"inline; filename*=utf-8''{quote(name, safe='', errors='surrogateescape')}"
