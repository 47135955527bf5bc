import base64
import os
from pathlib import Path
from typing import Annotated, BinaryIO

from fastmcp.exceptions import ToolError
from mcp_types import ImageContent
from pydantic import Field

from sandbox_tools.files.arguments import FilePath
from sandbox_tools.files.line_ranges import Excerpt, take_lines
from sandbox_tools.files.regular_files import open_file
from sandbox_tools.files.text_encoding import SAMPLE, Encoding, find_encoding
from sandbox_tools.toolkit.threads import Check, in_thread
from sandbox_tools.toolkit.truncation import MOST_IMAGE_BYTES
from sandbox_tools.toolkit.workspace import Workspace

_LINES = 2_000


class Reading:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def read_file(
        self,
        path: FilePath,
        offset: Annotated[
            int, Field(ge=1, description="The line to begin with; 1 is the first.")
        ] = 1,
        limit: Annotated[int, Field(ge=1, description="How many lines at most.")] = _LINES,
    ) -> str | ImageContent:
        """Read a file: text, or a PNG, JPEG, GIF or WebP image.

        Text comes as lines, each after its number and a tab, which are not part of it. At most 50,000 characters come at
        once, and of a line at most 2,000; where the file goes on, the answer's last line says with which offset to read on.
        """
        file = self._workspace.path(path)
        return await in_thread(lambda check: _read(file, offset, limit, check))


def _read(path: Path, offset: int, limit: int, check: Check) -> str | ImageContent:
    with open_file(path) as file:
        beginning = file.read(SAMPLE + 1)
        if kind := find_image_type(beginning):
            return show_image(path, beginning, file, kind)
        encoding = find_encoding(beginning)
        if encoding is None:
            raise _not_text(path, file)
        return _tell(
            path, encoding, take_lines(file, encoding, first=offset, at_most=limit, check=check)
        )


def _not_text(path: Path, file: BinaryIO) -> ToolError:
    return ToolError(
        f"{path} is neither text nor an image: it is {os.fstat(file.fileno()).st_size:,} binary bytes."
        " Look into it by a command such as file, xxd or strings."
    )


def _tell(path: Path, encoding: Encoding, excerpt: Excerpt) -> str:
    if not excerpt.lines:
        if excerpt.skipped == 0:
            return f"[{path} is empty.]"
        raise ToolError(f"{path} has only {excerpt.skipped} lines. Read it with a smaller offset.")
    numbered = (
        f"{number}\t{line}" for number, line in enumerate(excerpt.lines, excerpt.skipped + 1)
    )
    return "\n".join([*numbered, *_notes(encoding, excerpt)])


def _notes(encoding: Encoding, excerpt: Excerpt) -> list[str]:
    notes = []
    if excerpt.following != 0:
        of = "" if excerpt.total is None else f" of {excerpt.total}"
        notes.append(
            f"[Lines {excerpt.skipped + 1} to {excerpt.last}{of}. Read on with offset={excerpt.last + 1}.]"
        )
    if encoding.codec != "utf-8":
        notes.append(f"[The file is not UTF-8, but read as {encoding.codec}.]")
    return notes


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
