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
        source: Annotated[str, Field(description="File, directory or symlink to move.")],
        destination: Annotated[
            str,
            Field(
                description="New path; or the directory to move into, if it exists or ends in /."
            ),
        ],
        *,
        overwrite: Annotated[bool, Field(description="Replace an existing file.")] = False,
    ) -> str:
        """Move or rename a file, directory or symlink. Missing parent directories are created."""
        old, new = self._workspace.resolve(source), self._workspace.resolve(destination)
        if destination.endswith("/") or new.is_dir():
            new /= old.name
        return await run_in_thread(lambda _check: _move(old, new, overwrite=overwrite))


def _move(old: Path, new: Path, *, overwrite: bool) -> str:
    old.lstat()  # raises for a missing path
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
        raise ToolError(f"{path} already exists. Delete it first or choose another destination.")
    if not overwrite:
        raise ToolError(f"{path} already exists. Set overwrite=true to replace it.")
