"""The tool server. A toolset is a package of this one with a `register(server, ground)` in its `__init__` or `toolset`, called by `make_server`.

- A tool is an async function or method, handed to `server.tool(function, annotations=READS)`: its name is the tool's, its docstring
  what agents read, each argument `Annotated[type, Field(description=…, ge=…)]`. What blocks goes to a thread (`toolkit.threads.in_thread`) or a
  subprocess, and ends when the call is cancelled. Progress: `await context.report_progress(done, all, text)` with a `context: Context`.
- It fails by `ToolError("A sentence: what is wrong, and what to do.")`. An OSError becomes one by itself (`os_errors`); anything else
  is told as a fault of the tool server, without its text.
- What it says is bounded by `bounds`, with the cut marked; images too, or clients lose the answer. Structured output is a model as
  return type. For text it is `str`, declared with `output_schema=None`: else clients get it a second time as JSON, and some show
  agents only that.
- `ground` has the `settings`, read anew for each call, and the `workspace`: paths are `ground.workspace.path(given)`, commands run in
  `ground.workspace.root`. What must be closed is opened by `ground.while_serving(lambda: its_async_context_manager)`.
- `ground.health.add("name", tell)` puts `tell()` into `GET /health`, which is open to all.
- Imports at the top are paid by every sandbox that idles: the tool server has 100 MB, nearly all of it fastmcp's. Import playwright,
  SDKs, fastmcp's client and the like where they are first used.
"""

from fastmcp import FastMCP

from sandbox_tools import VERSION, browser, gateway, ports, shell
from sandbox_tools.access import TokenOfTheFile
from sandbox_tools.agents import tools as agents
from sandbox_tools.characters import WholeCharacters
from sandbox_tools.files import toolset as files
from sandbox_tools.lean import LeanFastMCP
from sandbox_tools.middleware import FailuresAsSentences
from sandbox_tools.toolkit.context import Ground
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
    ground = Ground(settings, workspace)
    server = LeanFastMCP(
        "sandbox",
        instructions=_INSTRUCTIONS.format(workspace=ground.workspace.root),
        version=VERSION,
        auth=TokenOfTheFile(settings),
        lifespan=ground.lifespan,
        mask_error_details=True,
        middleware=[WholeCharacters(), FailuresAsSentences()],
    )
    for register in _TOOLSETS:
        register(server, ground)
    server.custom_route("/health", methods=["GET"])(ground.health.endpoint(server))
    return server
