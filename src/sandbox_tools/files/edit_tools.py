from pathlib import Path
from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import Field

from sandbox_tools.files.arguments import FilePath
from sandbox_tools.files.atomic_write import write_atomically
from sandbox_tools.files.path_locks import PathLocks
from sandbox_tools.files.regular_files import open_regular_file
from sandbox_tools.files.text_encoding import Encoding, detect_encoding
from sandbox_tools.files.text_replacement import Edit, format_lines, replace
from sandbox_tools.toolkit.threads import run_in_thread
from sandbox_tools.toolkit.workspace import Workspace

_MAX_BYTES = 20 * 2**20
_OLD, _NEW, _ALL = (Edit.model_fields[name] for name in ("old_string", "new_string", "replace_all"))


class EditTools:
    def __init__(self, workspace: Workspace, locks: PathLocks) -> None:
        self._workspace = workspace
        self._locks = locks

    async def edit_file(
        self,
        path: FilePath,
        old_string: Annotated[str, Field(description=_OLD.description)],
        new_string: Annotated[str, Field(description=_NEW.description)],
        *,
        replace_all: Annotated[bool, Field(description=_ALL.description)] = False,
    ) -> str:
        """Replace an exact text in a file. Encoding, line endings and mode are kept.

        If old_string is missing or not unique, the file stays unchanged and the error shows the nearest match or the line numbers.
        """
        edit = Edit(old_string=old_string, new_string=new_string, replace_all=replace_all)
        return await self._change(self._workspace.resolve(path), [edit])

    async def multi_edit(
        self,
        path: FilePath,
        edits: Annotated[
            list[Edit],
            Field(
                min_length=1,
                description="Replacements, applied in order; each sees the result of the previous ones.",
            ),
        ],
    ) -> str:
        """Apply several replacements to one file, as edit_file does. If one fails, none is applied."""
        return await self._change(self._workspace.resolve(path), edits)

    async def _change(self, path: Path, edits: list[Edit]) -> str:
        async with self._locks.lock(path):
            return await run_in_thread(lambda _check: _change(path, edits))


def _change(path: Path, edits: list[Edit]) -> str:
    encoding, text = _load(path)
    done = []
    for number, edit in enumerate(edits, 1):
        try:
            text, lines = replace(text, edit)
        except ToolError as error:
            which = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
            raise ToolError(f"{path} is unchanged. {which}{error}") from None
        done.append(format_lines(lines))
    write_atomically(path, _encode(path, encoding, text))
    return f"Changed {path} at {'; then at '.join(done)}."


def _load(path: Path) -> tuple[Encoding, str]:
    with open_regular_file(path) as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ToolError(f"{path} is larger than {_MAX_BYTES:,} bytes. Edit it with run_command.")
    encoding = detect_encoding(content)
    if encoding is None:
        raise ToolError(f"{path} is a binary file. Edit it with run_command.")
    try:
        return encoding, encoding.decode(content)
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{path} is not valid {encoding.codec} at byte {error.start:,}. Edit it with run_command."
        ) from None


def _encode(path: Path, encoding: Encoding, text: str) -> bytes:
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{path} is unchanged: its encoding {encoding.codec} cannot represent {text[error.start]!a}."
        ) from None
