import base64
import os
from pathlib import Path
from typing import Annotated, BinaryIO

from fastmcp.exceptions import ToolError
from mcp_types import ImageContent
from pydantic import Field

from sandbox_tools.files.arguments import FilePath
from sandbox_tools.files.line_ranges import LineRange, read_lines
from sandbox_tools.files.regular_files import open_regular_file
from sandbox_tools.files.text_encoding import SAMPLE, Encoding, detect_encoding
from sandbox_tools.toolkit.threads import CheckCancelled, run_in_thread
from sandbox_tools.toolkit.truncation import MAX_IMAGE_BYTES
from sandbox_tools.toolkit.workspace import Workspace

_LINES = 2_000


class ReadTool:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def read_file(
        self,
        path: FilePath,
        offset: Annotated[
            int, Field(ge=1, description="First line to read; lines are numbered from 1.")
        ] = 1,
        limit: Annotated[int, Field(ge=1, description="Maximum number of lines.")] = _LINES,
    ) -> str | ImageContent:
        """Read a text file, or view a PNG, JPEG, GIF or WebP image.

        Each line is prefixed with its number and a tab, which are not part of the file. Returns at most 50,000 characters, and 2,000
        per line. If more follows, the last line of the result gives the offset to continue with.
        """
        file = self._workspace.resolve(path)
        return await run_in_thread(
            lambda check_cancelled: _read(file, offset, limit, check_cancelled)
        )


def _read(
    path: Path, offset: int, limit: int, check_cancelled: CheckCancelled
) -> str | ImageContent:
    with open_regular_file(path) as file:
        beginning = file.read(SAMPLE + 1)
        if kind := detect_image_type(beginning):
            return read_image(path, beginning, file, kind)
        encoding = detect_encoding(beginning)
        if encoding is None:
            raise _not_text(path, file)
        return _format(
            path,
            encoding,
            read_lines(file, encoding, first=offset, limit=limit, check_cancelled=check_cancelled),
        )


def _not_text(path: Path, file: BinaryIO) -> ToolError:
    return ToolError(
        f"{path} is a binary file of {os.fstat(file.fileno()).st_size:,} bytes."
        " Inspect it in run_command with file, xxd or strings."
    )


def _format(path: Path, encoding: Encoding, lines_read: LineRange) -> str:
    if not lines_read.lines:
        if lines_read.skipped == 0:
            return f"[{path} is empty.]"
        raise ToolError(f"{path} has only {lines_read.skipped} lines. Use a smaller offset.")
    numbered = (
        f"{number}\t{line}" for number, line in enumerate(lines_read.lines, lines_read.skipped + 1)
    )
    return "\n".join([*numbered, *_notes(encoding, lines_read)])


def _notes(encoding: Encoding, lines_read: LineRange) -> list[str]:
    notes = []
    if lines_read.following != 0:
        of = "" if lines_read.total is None else f" of {lines_read.total}"
        notes.append(
            f"[Lines {lines_read.skipped + 1} to {lines_read.last}{of}. Continue with offset={lines_read.last + 1}.]"
        )
    if encoding.codec != "utf-8":
        notes.append(f"[The file is not UTF-8; it was read as {encoding.codec}.]")
    return notes


_MAGIC_BYTES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def detect_image_type(beginning: bytes) -> str | None:
    """Return the MIME type of an image that models accept, or None."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    known = (kind for magic, kind in _MAGIC_BYTES.items() if beginning.startswith(magic))
    return next(known, None)


def read_image(path: Path, beginning: bytes, rest: BinaryIO, kind: str) -> ImageContent:
    size = os.fstat(rest.fileno()).st_size
    if size > MAX_IMAGE_BYTES:
        raise ToolError(
            f"{path} is an image ({kind}) of {size:,} bytes; the limit is {MAX_IMAGE_BYTES:,}."
            " Create a smaller copy and read that."
        )
    content = base64.b64encode(beginning + rest.read(MAX_IMAGE_BYTES)).decode()
    return ImageContent(type="image", data=content, mime_type=kind)
