import asyncio
import errno
import os
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import Field

from sandbox_tools.toolkit.truncation import truncate_end
from sandbox_tools.toolkit.workspace import Workspace


class DeleteTool:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def delete(
        self,
        path: Annotated[str, Field(description="File, directory or symlink to delete.")],
        *,
        recursive: Annotated[
            bool, Field(description="Delete a directory with all its contents.")
        ] = False,
    ) -> str:
        """Delete a file, an empty directory or, with `recursive`, a directory and its contents. This cannot be undone.

        For a symlink only the link is deleted, not its target.
        """
        target = self._workspace.resolve(path)
        self._require_deletable(target)
        if not _delete_one(target):
            if not recursive:
                raise ToolError(
                    f"{target} is not empty. Set recursive=true to delete it with all its contents."
                )
            await _delete_all(target)
        return f"Deleted {target}."

    def _require_deletable(self, path: Path) -> None:
        """Refuse to delete the working directory, the home directory and their parents."""
        if path.is_symlink():
            return
        # Path.resolve raises RuntimeError for symlink loops.
        target = Path(os.path.realpath(path))
        for kept in (self._workspace.root.resolve(), Path.home().resolve()):
            if target == kept or target in kept.parents:
                raise ToolError(
                    f"This would delete {kept}, which the sandbox needs. Delete its contents instead."
                )


def _delete_one(path: Path) -> bool:
    """Delete a file or an empty directory; return False for a directory that is not empty."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return True
    try:
        path.rmdir()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


async def _delete_all(path: Path) -> None:
    """Delete with rm, which is killed when the call is cancelled."""
    process = await asyncio.create_subprocess_exec(
        *("rm", "-rf", "--", os.fspath(path)), stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    try:
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        left = truncate_end(errors.decode(errors="replace").strip(), limit=1_000)
        raise ToolError(f"{path} was deleted only in part. {left}")
