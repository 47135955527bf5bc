"""The floor: a fastmcp server with one tool that does nothing."""

import sys

import uvicorn
from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response


async def trivial() -> str:
    """Do nothing."""
    return ""


async def tell_health(_request: Request) -> Response:
    return JSONResponse({})


def main(port: int) -> None:
    server = FastMCP("floor")
    server.tool(trivial, output_schema=None)
    server.custom_route("/health", methods=["GET"])(tell_health)
    app = server.http_app(path="/mcp/", host_origin_protection=False)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(int(sys.argv[1]))
