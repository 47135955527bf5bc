from collections.abc import Sequence
from typing import Any

from fastmcp.server.providers import Provider
from fastmcp.tools import Tool
from fastmcp.utilities.versions import VersionSpec

from sandbox_tools.tasks.task_file import TaskFiles
from sandbox_tools.tasks.tools import TaskTools
from sandbox_tools.toolkit.annotations import OVERWRITES, READS


class TaskToolProvider(Provider):
    """Lists the tools of tasks where there is a task: elsewhere they would only cost the model's context.

    The tool server may have started before the checkout, in a sandbox of the warm pool. Calls are answered in any case, and say
    that there is no task.
    """

    def __init__(self, files: TaskFiles) -> None:
        super().__init__()
        self._files = files
        tools = TaskTools(files)
        made = (
            *(_tool(each, READS) for each in (tools.task_get, tools.task_checks)),
            _tool(tools.task_ci_log, READS),
            *(_tool(each, OVERWRITES) for each in (tools.task_report, tools.task_ask)),
        )
        self._tools = {tool.name: tool for tool in made}

    async def _list_tools(self) -> Sequence[Tool]:
        return [] if self._files.find() is None else list(self._tools.values())

    async def _get_tool(
        self,
        name: str,
        version: VersionSpec | None = None,  # noqa: ARG002 - they have no versions
    ) -> Tool | None:
        return self._tools.get(name)


def _tool(function: Any, annotations: Any) -> Tool:
    return Tool.from_function(function, annotations=annotations, output_schema=None)
