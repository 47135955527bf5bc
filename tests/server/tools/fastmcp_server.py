"""A typical fastmcp tool server, run inside a sandbox."""

import asyncio
import json
from pathlib import Path

from fastmcp import Context, FastMCP
from fastmcp.server.auth import AccessToken, TokenVerifier
from fastmcp.server.dependencies import get_http_headers

TOOLS_FILE = Path("/etc/sandbox/tools.json")

gone_on = asyncio.Event()


class TokenInFile(TokenVerifier):
    """Accepts the token in the current file."""

    async def verify_token(self, token: str) -> AccessToken | None:
        if not TOOLS_FILE.exists() or json.loads(TOOLS_FILE.read_text())["token"] != token:
            return None
        return AccessToken(token=token, client_id="server", scopes=[])


mcp = FastMCP("tools of a test", auth=TokenInFile())


@mcp.tool
async def wait(ctx: Context) -> str:
    await ctx.report_progress(1, message="waiting")
    await gone_on.wait()
    return "went on"


@mcp.tool
async def go_on() -> str:
    gone_on.set()
    return "done"


@mcp.tool
async def length(text: str) -> str:
    return str(len(text))


@mcp.tool
async def seen() -> str:
    return json.dumps(get_http_headers(include_all=True))


mcp.run("http", host="127.0.0.1", port=6060, path="/mcp/", show_banner=False)
