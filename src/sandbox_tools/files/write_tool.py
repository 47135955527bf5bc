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
            Field(
                description="All of the file's text, at most about 3 MB; it is written as UTF-8."
            ),
        ],
    ) -> str:
        """Write a file as a whole.

        A new one is made with the directories on the way to it; one that is there loses all that it had in it, and keeps its
        mode. Use edit_file to change a part of a file.
        """
        file = self._workspace.resolve(path)
        async with self._locks.of(file):
            is_new = await run_in_thread(lambda _check: write_atomically(file, _encode(content)))
        return f"{'Made' if is_new else 'Overwrote'} {file} with {_count_lines(content)}."


def _encode(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        character = f"U+{ord(content[error.start]):04X}"
        raise ToolError(
            f"The content has a lone surrogate in it, {character}, which no text has."
        ) from None


def _count_lines(content: str) -> str:
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    return f"{lines} line{'' if lines == 1 else 's'}"
