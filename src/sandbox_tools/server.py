from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sandbox_tools.access import TokenOfTheFile
from sandbox_tools.settings_file import SettingsFile


def make_server(settings: SettingsFile) -> FastMCP:
    """Put all tools together; whoever adds some has a `register(server, …)` that is called here."""
    server = FastMCP("sandbox", auth=TokenOfTheFile(settings))
    server.custom_route("/health", methods=["GET"])(_tell_health)
    return server


async def _tell_health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})
