"""The tool server. A toolset is a package of this one with a `register(server, ground)` in its `__init__` or `toolset`, called by `make_server`.

- A tool is an async function or method, handed to `server.tool(function, annotations=READS)`: its name is the tool's, its docstring
  what agents read, each argument `Annotated[type, Field(description=…, ge=…)]`. What blocks goes to a thread (`toolkit.threads.in_thread`) or a
  subprocess, and ends when the call is cancelled. Progress: `await context.report_progress(done, all, text)` with a `context: Context`.
- It fails by `ToolError("A sentence: what is wrong, and what to do.")`. An OSError becomes one by itself (`os_errors`); anything else
  is told as a fault of the tool server, without its text.
- What it says is bounded by `bounds`, with the cut marked; images too, or clients lose the answer. Structured output is a model as
  return type. For text it is `str`, declared with `output_schema=None`: else clients get it a second time as JSON, and some show
  agents only that.
- `ground` has the `settings`, read anew for each call, and the `workspace`: paths are `ground.workspace.resolve(given)`, commands run in
  `ground.workspace.root`. What must be closed is opened by `ground.while_serving(lambda: its_async_context_manager)`.
- `ground.health.add("name", tell)` puts `tell()` into `GET /health`, which is open to all.
- Imports at the top are paid by every sandbox that idles: the tool server has 100 MB, nearly all of it fastmcp's. Import playwright,
  SDKs, fastmcp's client and the like where they are first used.
"""

import secrets
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, TokenVerifier

from sandbox_tools import VERSION, browser, files, gateway, ports, shell
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
    gateway.register,
    browser.register,
)
_INSTRUCTIONS = """\
These tools are a Linux computer of your own, a sandbox. Relative paths are in {workspace}, where commands run too. \
What is too long is cut where an answer says so; what fails says why, and what to do.
"""


def make_server(settings: SettingsFile, *, workspace: Workspace) -> FastMCP:
    """Put all tools together."""
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
    """Lets in who has the token that the file of settings has at this moment."""

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
    """A FastMCP that keeps no state of sessions, and lists no tools unless it is asked for them.

    None of ours has any, but it is asked for at each call, and the first one would load a store for it: 8 MB, for which an
    agent's first call waits 0.2 s and more. Where fastmcp names it otherwise, all goes on as it does there.

    For clients of 2026 it would list all tools before each call, to see whether the one that is called has arguments that must also
    be headers: 2 ms, and a wait for servers that are just being started.
    """

    _state_store = _NoState()  # type: ignore[assignment]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._mcp_server.get_tool_input_schema = _no_input_schema
