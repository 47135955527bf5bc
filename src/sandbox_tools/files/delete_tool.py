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
        path: Annotated[str, Field(description="The file, directory or symlink to delete.")],
        *,
        recursive: Annotated[
            bool, Field(description="Delete a directory with all that is in it.")
        ] = False,
    ) -> str:
        """Delete a file, an empty directory or, with `recursive`, a directory with all that is in it; for good.

        Of a symlink only the link is deleted, not what it leads to.
        """
        target = self._workspace.resolve(path)
        self._require_deletable(target)
        if not _delete_one(target):
            if not recursive:
                raise ToolError(
                    f"{target} is a directory that is not empty. Set recursive to delete it with all"
                    " that is in it."
                )
            await _delete_all(target)
        return f"Deleted {target}."

    def _require_deletable(self, path: Path) -> None:
        """Keep what the sandbox cannot do without, which a slip of the pen would delete."""
        if path.is_symlink():
            return
        # Not `resolve`, for which a loop of symlinks is a RuntimeError.
        target = Path(os.path.realpath(path))
        for kept in (self._workspace.root.resolve(), Path.home().resolve()):
            if target == kept or target in kept.parents:
                raise ToolError(f"{kept} would be deleted, which is needed. Delete what is in it.")


def _delete_one(path: Path) -> bool:
    """Delete what has nothing in it; whether it had nothing."""
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
    """Leave it to a program, which is ended with the call."""
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
        raise ToolError(f"Not all of {path} could be deleted. {left}")
