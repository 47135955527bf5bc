from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import Field

from sandbox_tools.files.arguments import FilePath
from sandbox_tools.files.atomic_write import write_atomically
from sandbox_tools.files.path_locks import PathLocks
from sandbox_tools.toolkit.threads import run_in_thread
from sandbox_tools.toolkit.workspace import Workspace


class WriteTool:
    def __init__(self, workspace: Workspace, locks: PathLocks) -> None:
        self._workspace = workspace
        self._locks = locks

    async def write_file(
        self,
        path: FilePath,
        content: Annotated[
            str,
            Field(description="Complete content, written as UTF-8; at most about 3 MB."),
        ],
    ) -> str:
        """Create a file or overwrite an existing one with the given content.

        Missing parent directories are created. An existing file keeps its mode. To change part of a file, use edit_file.
        """
        file = self._workspace.resolve(path)
        async with self._locks.lock(file):
            is_new = await run_in_thread(lambda _check: write_atomically(file, _encode(content)))
        return f"{'Created' if is_new else 'Overwrote'} {file} with {_count_lines(content)}."


def _encode(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        character = f"U+{ord(content[error.start]):04X}"
        raise ToolError(
            f"The content contains a lone surrogate, {character}, which is not valid Unicode. Remove it."
        ) from None


def _count_lines(content: str) -> str:
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    return f"{lines} line{'' if lines == 1 else 's'}"
