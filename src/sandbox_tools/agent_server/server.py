import argparse
import asyncio
import json
import logging
import secrets
import signal
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from sandbox_tools import coding_agents
from sandbox_tools.agent_server.connection import Connection
from sandbox_tools.agent_server.sessions import Limits, Sessions
from sandbox_tools.toolkit.settings_file import PATH, SettingsFile

_MAX_REQUEST = 8 << 20
_STATE = ".local/state/sandbox-agents"


class AgentServer:
    """WebSocket server for sessions with coding agents; see docs/agent-server.md."""

    def __init__(self, settings: SettingsFile, sessions: Sessions) -> None:
        self._settings = settings
        self._sessions = sessions

    async def serve(self, host: str, port: int, until: asyncio.Event) -> None:
        """Serve until `until` is set, then end all agents."""
        async with (
            self._sessions.serving(),
            serve(
                self._answer,
                host,
                port,
                process_request=self._admit,
                max_size=_MAX_REQUEST,
                compression=None,
                # A paused sandbox answers pings late; that is not a failure.
                ping_interval=30,
                ping_timeout=None,
            ),
        ):
            await until.wait()

    async def _answer(self, socket: ServerConnection) -> None:
        await Connection(socket, self._sessions).serve()

    def _admit(self, socket: ServerConnection, request: Request) -> Response | None:
        path = request.path.partition("?")[0]
        if path == "/health":
            return _json(socket, self._health())
        if not self._is_authorized(request.headers.get_all("Authorization")):
            return socket.respond(
                HTTPStatus.UNAUTHORIZED,
                "Missing or invalid token. Send Authorization: Bearer TOKEN.\n",
            )
        if path != "/":
            return socket.respond(HTTPStatus.NOT_FOUND, "The WebSocket is at /.\n")
        return None

    def _is_authorized(self, authorizations: Sequence[str]) -> bool:
        token = self._settings.read().token
        if token is None or len(authorizations) != 1:
            return False
        scheme, _, credential = authorizations[0].partition(" ")
        is_it = secrets.compare_digest(_bytes(credential.strip()), _bytes(token))
        return scheme.lower() == "bearer" and is_it

    def _health(self) -> dict[str, object]:
        installed = coding_agents.installed_agents()
        return {"status": "ok", "agents": installed, "running": self._sessions.running}


def _bytes(token: str) -> bytes:
    return token.encode(errors="surrogatepass")


def _json(socket: ServerConnection, document: dict[str, object]) -> Response:
    response = socket.respond(HTTPStatus.OK, json.dumps(document))
    del response.headers["Content-Type"]
    response.headers["Content-Type"] = "application/json"
    return response


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="sandbox-tools serve-agents")
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - requests need a token
    parser.add_argument("--port", type=int, default=3000)
    parser.add_argument("--settings", type=Path, default=PATH)
    parser.add_argument(
        "--workspace",
        type=lambda path: Path(path).absolute(),
        default=".",
        help="working directory of agents (default: the current directory)",
    )
    parser.add_argument("--state", type=Path, default=Path.home() / _STATE)
    parser.add_argument("--tool-server", default="http://127.0.0.1:6060/mcp/")
    parser.add_argument("--idle-s", type=float, default=Limits.idle_seconds)
    parser.add_argument("--most-running", type=int, default=Limits.running)
    parser.add_argument("--stop-s", type=float, default=Limits.seconds_to_stop)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    settings = SettingsFile(options.settings)
    sessions = Sessions(
        settings,
        state=options.state,
        workspace=options.workspace,
        tool_server=options.tool_server,
        limits=Limits(
            running=options.most_running,
            idle_seconds=options.idle_s,
            seconds_to_stop=options.stop_s,
        ),
    )
    asyncio.run(_serve(AgentServer(settings, sessions), options.host, options.port))
    return 0


async def _serve(server: AgentServer, host: str, port: int) -> None:
    until = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, until.set)
    await server.serve(host, port, until)
