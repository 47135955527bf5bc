from asyncio import to_thread
from typing import Annotated

from pydantic import Field

from sandbox_tools.bounds import cut_end
from sandbox_tools.workspace import Workspace


class Reading:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def read_file(
        self,
        path: Annotated[str, Field(description="Absolute, or relative to the workspace; ~ works.")],
    ) -> str:
        """Read a text file."""
        return cut_end(await to_thread(self._workspace.path(path).read_text))
