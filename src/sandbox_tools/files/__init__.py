from fastmcp import FastMCP

from sandbox_tools.files.delete_tool import Deleting
from sandbox_tools.files.edit_tools import Editing
from sandbox_tools.files.glob_tool import Globbing
from sandbox_tools.files.grep_tool import Grepping
from sandbox_tools.files.list_tool import Listing
from sandbox_tools.files.move_tool import Moving
from sandbox_tools.files.path_locks import Turns
from sandbox_tools.files.read_tool import Reading
from sandbox_tools.files.write_tool import Writing
from sandbox_tools.toolkit.annotations import DESTROYS, OVERWRITES, READS
from sandbox_tools.toolkit.context import Ground


def register(server: FastMCP, ground: Ground) -> None:
    workspace, turns = ground.workspace, Turns()
    editing = Editing(workspace, turns)
    for tool, annotations in (
        (Reading(workspace).read_file, READS),
        (Writing(workspace, turns).write_file, OVERWRITES),
        (editing.edit_file, DESTROYS),
        (editing.multi_edit, DESTROYS),
        (Listing(workspace).list_directory, READS),
        (Globbing(workspace).glob, READS),
        (Grepping(workspace).grep, READS),
        (Deleting(workspace).delete, DESTROYS),
        (Moving(workspace).move, DESTROYS),
    ):
        server.tool(tool, annotations=annotations, output_schema=None)
