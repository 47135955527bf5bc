from fastmcp import FastMCP

from sandbox_tools.annotations import DESTROYS, OVERWRITES, READS
from sandbox_tools.files.deleting import Deleting
from sandbox_tools.files.editing import Editing
from sandbox_tools.files.globbing import Globbing
from sandbox_tools.files.grepping import Grepping
from sandbox_tools.files.listing import Listing
from sandbox_tools.files.moving import Moving
from sandbox_tools.files.reading import Reading
from sandbox_tools.files.turns import Turns
from sandbox_tools.files.writing import Writing
from sandbox_tools.ground import Ground


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
