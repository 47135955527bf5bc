"""The tool server. A toolset is a package with a function `register(server, context)`, listed in `_TOOLSETS`.

- A tool is an async function or method, registered by `server.tool(function, annotations=READS)`. Its name is the tool's name, its
  docstring the description for models, each parameter `Annotated[type, Field(description=…, ge=…)]`. Blocking work runs in a thread
  (`toolkit.threads.run_in_thread`) or a subprocess, and ends when the call is cancelled. Progress:
  `await context.report_progress(done, total, text)` with a `context: fastmcp.Context`.
- It fails with `ToolError("What is wrong. What to do.")`. An OSError is converted (`toolkit.os_errors`); any other exception is
  reported as an internal error without its text.
- Results are bounded by `toolkit.truncation`, which marks what was truncated; images too, or clients lose the result. Structured
  output is a model as return type. For text use `str` and `output_schema=None`: otherwise clients receive it a second time as JSON,
  and some show models only that.
- `context.settings` is read again for each call. Resolve paths with `context.workspace.resolve(path)`, run commands in
  `context.workspace.root`. Open what must be closed with `context.add_lifespan(lambda: its_async_context_manager)`.
- `context.health.add("name", check)` adds `check()` to `GET /health`, which needs no token.
- Every idle sandbox pays for imports at the top: the tool server needs 100 MB, nearly all of it fastmcp's. Import playwright, SDKs,
  fastmcp's client and the like where they are first used.
"""

import secrets
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, TokenVerifier

from sandbox_tools import VERSION, browser, code, computer, files, gateway, ports, shell, tasks
from sandbox_tools.agents import tools as agents
from sandbox_tools.middleware import ToolErrorMiddleware, UnicodeMiddleware
from sandbox_tools.toolkit.context import ToolsetContext
from sandbox_tools.toolkit.settings_file import SettingsFile
from sandbox_tools.toolkit.workspace import Workspace

_TOOLSETS = (
    files.register,
    ports.register,
    shell.register,
    agents.register,
    code.register,
    gateway.register,
    browser.register,
    computer.register,
    tasks.register,
)
_INSTRUCTIONS = """\
These tools control a sandbox: a Linux computer of your own. The working directory is {workspace}: commands run there, and relative \
paths start there. Long results are truncated where marked. Errors say what is wrong and what to do next.
"""


def make_server(settings: SettingsFile, *, workspace: Workspace) -> FastMCP:
    """Build the MCP server with all toolsets."""
    context = ToolsetContext(settings, workspace)
    server = StatelessFastMCP(
        "sandbox",
        instructions=_INSTRUCTIONS.format(workspace=context.workspace.root),
        version=VERSION,
        auth=SettingsTokenVerifier(settings),
        lifespan=context.lifespan,
        mask_error_details=True,
        middleware=[UnicodeMiddleware(), ToolErrorMiddleware()],
    )
    for register in _TOOLSETS:
        register(server, context)
    server.custom_route("/health", methods=["GET"])(context.health.endpoint(server))
    return server


class SettingsTokenVerifier(TokenVerifier):
    """Accept the token that the settings file contains at this moment."""

    def __init__(self, settings: SettingsFile) -> None:
        super().__init__()
        self._settings = settings

    async def verify_token(self, token: str) -> AccessToken | None:
        known = self._settings.read().token
        if known is None or not secrets.compare_digest(token.encode(), known.encode()):
            return None
        return AccessToken(token=token, client_id="server", scopes=[])


class _NoState:
    async def get(self, **_key: object) -> None:
        return None


def _no_input_schema(_tool: str) -> None:
    return None


class StatelessFastMCP(FastMCP[Any]):
    """A FastMCP without session state, and without listing all tools before each call.

    fastmcp reads session state at each call, and the first read loads a store: 8 MB, and 0.2 s or more for the agent's first call. No
    tool here uses it. If fastmcp renames the attribute, its default applies.

    For clients of protocol 2026 it would list all tools before each call, to find arguments that must also be headers: 2 ms, and a
    wait for servers that are starting.
    """

    _state_store = _NoState()  # type: ignore[assignment]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._mcp_server.get_tool_input_schema = _no_input_schema
