import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from sandbox_tools.server import make_server
from sandbox_tools.toolkit.settings_file import PATH, SettingsFile
from sandbox_tools.toolkit.workspace import Workspace

_SHUTDOWN_SECONDS = 1


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="sandbox-tools serve")
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - requests need a token
    parser.add_argument("--port", type=int, default=6060)
    parser.add_argument("--settings", type=Path, default=PATH)
    parser.add_argument(
        "--workspace",
        type=lambda path: Path(path).absolute(),
        default=".",
        help="directory for relative paths and commands (default: the current directory)",
    )
    options = parser.parse_args(arguments)
    configure_log()
    server = make_server(SettingsFile(options.settings), workspace=Workspace(options.workspace))
    app = server.http_app(path="/mcp/", host_origin_protection=False)
    uvicorn.run(
        app,
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        # Clients keep streams open permanently, and running calls are to be cancelled.
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    return 0


def configure_log() -> None:
    """Log one line per event, without colours."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    fastmcp = logging.getLogger("fastmcp")
    fastmcp.handlers.clear()
    fastmcp.propagate = True
    fastmcp.setLevel(logging.WARNING)
    # It logs every failed tool call, mostly agents' mistakes; ToolErrorMiddleware logs our own.
    logging.getLogger("fastmcp.server.server").setLevel(logging.CRITICAL)
