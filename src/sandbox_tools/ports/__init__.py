from fastmcp import FastMCP

from sandbox_tools.ports.tools import Exposing
from sandbox_tools.toolkit.annotations import READS
from sandbox_tools.toolkit.context import Ground


def register(server: FastMCP, ground: Ground) -> None:
    server.tool(Exposing(ground.settings).expose_port, annotations=READS)
