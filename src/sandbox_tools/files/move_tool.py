import errno
import os
import shutil
from pathlib import Path
from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import Field

from sandbox_tools.files.atomic_write import make_parents
from sandbox_tools.toolkit.threads import run_in_thread
from sandbox_tools.toolkit.workspace import Workspace


class MoveTool:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def move(
        self,
        source: Annotated[str, Field(description="The file, directory or symlink to move.")],
        destination: Annotated[
            str,
            Field(
                description="Its new path; or a directory to move it into, one that is there or with a / at its end."
            ),
        ],
        *,
        overwrite: Annotated[
            bool, Field(description="Replace a file that is at the destination.")
        ] = False,
    ) -> str:
        """Move or rename a file or a directory; directories on the way to the destination are made."""
        old, new = self._workspace.resolve(source), self._workspace.resolve(destination)
        if destination.endswith("/") or new.is_dir():
            new /= old.name
        return await run_in_thread(lambda _check: _move(old, new, overwrite=overwrite))


def _move(old: Path, new: Path, *, overwrite: bool) -> str:
    old.lstat()  # a path that is not there is said here
    is_directory = old.is_dir() and not old.is_symlink()
    if is_directory and Path(os.path.realpath(old)) in Path(os.path.realpath(new)).parents:
        raise ToolError(f"{old} cannot be moved into itself.")
    if os.path.lexists(new):
        _require_replaceable(new, is_directory=is_directory, overwrite=overwrite)
    make_parents(new)
    try:
        old.rename(new)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(old, new)
    return f"Moved {old} to {new}."


def _require_replaceable(path: Path, *, is_directory: bool, overwrite: bool) -> None:
    if is_directory or (path.is_dir() and not path.is_symlink()):
        raise ToolError(f"{path} is there already. Delete it first, or choose another destination.")
    if not overwrite:
        raise ToolError(f"{path} is there already. Set overwrite to replace it.")
