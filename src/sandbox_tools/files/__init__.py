from fastmcp import FastMCP

from sandbox_tools.annotations import READS
from sandbox_tools.files.reading import Reading
from sandbox_tools.ground import Ground


def register(server: FastMCP, ground: Ground) -> None:
    server.tool(Reading(ground.workspace).read_file, annotations=READS, output_schema=None)
