import base64
import os
from pathlib import Path
from typing import BinaryIO

from fastmcp.exceptions import ToolError
from mcp_types import ImageContent

from sandbox_tools.toolkit.truncation import MOST_IMAGE_BYTES

_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def find_image_type(beginning: bytes) -> str | None:
    """Tell the type of an image that models can see."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    known = (kind for magic, kind in _BEGINNINGS.items() if beginning.startswith(magic))
    return next(known, None)


def show_image(path: Path, beginning: bytes, rest: BinaryIO, kind: str) -> ImageContent:
    size = os.fstat(rest.fileno()).st_size
    if size > MOST_IMAGE_BYTES:
        raise ToolError(
            f"{path} is an image ({kind}) of {size:,} bytes, and at most {MOST_IMAGE_BYTES:,} can be shown."
            " Make a smaller copy of it and read that."
        )
    content = base64.b64encode(beginning + rest.read(MOST_IMAGE_BYTES)).decode()
    return ImageContent(type="image", data=content, mime_type=kind)
