"""Formats of results as files."""

import json
import re

from fastapi import Response

from sandbox_server.domain.errors import CodeResultNotFound
from sandbox_server.interpreters.messages import file_of
from sandbox_server.log.records import Record

_MEDIA_TYPES = {
    "text": ("text/plain; charset=utf-8", "txt"),
    "html": ("text/html; charset=utf-8", "html"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "svg": ("image/svg+xml", "svg"),
    "png": ("image/png", "png"),
    "jpeg": ("image/jpeg", "jpeg"),
    "pdf": ("application/pdf", "pdf"),
    "latex": ("text/x-tex; charset=utf-8", "tex"),
    "javascript": ("text/javascript; charset=utf-8", "js"),
    **dict.fromkeys(("json", "data", "chart"), ("application/json", "json")),
}
_MIME = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}", re.IGNORECASE)


def answer_file(record: Record, name: str) -> Response:
    """Answer with one format of a result.

    It is a download in a sandbox of the browser: HTML and SVG of a sandbox must not run as pages of this server.
    """
    formats = json.loads(record.content)
    if name not in formats:
        raise CodeResultNotFound(name)
    other = name if _MIME.fullmatch(name) else "application/octet-stream"
    media_type, extension = _MEDIA_TYPES.get(name, (other, "bin"))
    filename = f"result-{record.data['number']}.{extension}"
    return Response(
        file_of(name, formats[name]),
        media_type=media_type,
        headers={
            "Content-Disposition": f'attachment; filename="{filename}"',
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
        },
    )
