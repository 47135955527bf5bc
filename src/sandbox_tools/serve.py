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
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="sandbox-tools serve")
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - it is reached from outside, with a token
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
        # Clients hold streams open all the time, and calls that run are to be cancelled.
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    return 0


def configure_log() -> None:
    """Have one line for each event, without colours: it is a file that people and streams read."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    fastmcp = logging.getLogger("fastmcp")
    fastmcp.handlers.clear()
    fastmcp.propagate = True
    fastmcp.setLevel(logging.WARNING)
    # It tells each failure of a tool, most of which are agents' mistakes; `failures` tells those that are ours.
    logging.getLogger("fastmcp.server.server").setLevel(logging.CRITICAL)
