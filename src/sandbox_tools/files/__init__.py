from fastmcp import FastMCP

from sandbox_tools.files.delete_tool import DeleteTool
from sandbox_tools.files.edit_tools import EditTools
from sandbox_tools.files.glob_tool import GlobTool
from sandbox_tools.files.grep_tool import GrepTool
from sandbox_tools.files.list_tool import ListTool
from sandbox_tools.files.move_tool import MoveTool
from sandbox_tools.files.path_locks import PathLocks
from sandbox_tools.files.read_tool import ReadTool
from sandbox_tools.files.write_tool import WriteTool
from sandbox_tools.toolkit.annotations import DESTROYS, OVERWRITES, READS
from sandbox_tools.toolkit.context import ToolsetContext


def register(server: FastMCP, context: ToolsetContext) -> None:
    workspace, locks = context.workspace, PathLocks()
    editing = EditTools(workspace, locks)
    for tool, annotations in (
        (ReadTool(workspace).read_file, READS),
        (WriteTool(workspace, locks).write_file, OVERWRITES),
        (editing.edit_file, DESTROYS),
        (editing.multi_edit, DESTROYS),
        (ListTool(workspace).list_directory, READS),
        (GlobTool(workspace).glob, READS),
        (GrepTool(workspace).grep, READS),
        (DeleteTool(workspace).delete, DESTROYS),
        (MoveTool(workspace).move, DESTROYS),
    ):
        server.tool(tool, annotations=annotations, output_schema=None)
