from fastmcp import FastMCP

from sandbox_tools.annotations import READS
from sandbox_tools.ground import Ground
from sandbox_tools.ports.exposing import Exposing


def register(server: FastMCP, ground: Ground) -> None:
    server.tool(Exposing(ground.settings).expose_port, annotations=READS)
