"""`sandbox-tools forward`: the proxy at 3128 and its control at 9223, both on the loopback interface.

GET /health   without a token
PUT /config   {"upstreams": [{"type": "external" | "none", "server", "username", "password", "domain_pattern"}], "hosts": {},
              "allowed_domains": ["example.com", "*.example.org"] | null}
GET /usage    {"bytes_in", "bytes_out"}
"""

import argparse
import asyncio
import hmac
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from sandbox_tools.forwarder.http_head import Head, MalformedHead, read_head, write_head
from sandbox_tools.forwarder.proxy import LIMIT, Forwarder
from sandbox_tools.forwarder.routes import InvalidConfig, parse_routes
from sandbox_tools.toolkit.settings_file import SettingsFile

PROXY_PORT = 3128
CONTROL_PORT = 9223

_LOOPBACK = "127.0.0.1"
_LARGEST_CONFIG = 1024 * 1024

_Answer = tuple[int, Any]


class Control:
    """Takes the configuration of the forwarder, from the holder of the sandbox's token."""

    def __init__(self, forwarder: Forwarder, settings: SettingsFile) -> None:
        self._forwarder = forwarder
        self._settings = settings

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request."""
        try:
            head = await read_head(reader)
            if head is not None:
                writer.write(_encode(*await self._answer(head, reader)))
                await writer.drain()
        except MalformedHead:
            writer.write(_encode(400, {"detail": "The request is not valid HTTP/1.1."}))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            with suppress(OSError):
                writer.close()
                await writer.wait_closed()

    async def _answer(self, head: Head, reader: asyncio.StreamReader) -> _Answer:
        method, path, _ = head.first_line
        if (method, path) == ("GET", "/health"):
            return 200, {"ready": True}
        if not self._is_authorized(head):
            return 401, {"detail": "Missing or invalid token."}
        if (method, path) == ("GET", "/usage"):
            return 200, asdict(self._forwarder.traffic)
        if (method, path) == ("PUT", "/config"):
            return await self._configure(head, reader)
        return 404, {"detail": "There is no such path."}

    def _is_authorized(self, head: Head) -> bool:
        token = self._settings.read().token
        presented = (head.find("authorization") or "").removeprefix("Bearer ")
        return token is not None and hmac.compare_digest(presented.encode(), token.encode())

    async def _configure(self, head: Head, reader: asyncio.StreamReader) -> _Answer:
        length = head.find("content-length") or ""
        if not length.isdigit() or int(length) > _LARGEST_CONFIG:
            return 413, {"detail": f"The configuration may have {_LARGEST_CONFIG} bytes."}
        try:
            routes = parse_routes(json.loads(await reader.readexactly(int(length))))
        except InvalidConfig as error:
            return 422, {"detail": str(error)}
        except (ValueError, RecursionError):
            return 422, {"detail": "The configuration is not valid JSON."}
        self._forwarder.routes = routes
        return 204, None


def _encode(status: int, content: Any) -> bytes:
    body = b"" if content is None else json.dumps(content).encode()
    headers = [("Content-Type", "application/json"), ("Connection", "close")]
    if status != 204:  # noqa: PLR2004 - has no body
        headers.append(("Content-Length", str(len(body))))
    return write_head(f"HTTP/1.1 {status} -", headers) + body


async def serve(proxy_port: int, control_port: int) -> None:
    """Serve until cancelled."""
    forwarder = Forwarder()
    control = Control(forwarder, SettingsFile())
    async with (
        await asyncio.start_server(forwarder.serve, _LOOPBACK, proxy_port, limit=LIMIT) as proxy,
        await asyncio.start_server(control.serve, _LOOPBACK, control_port, limit=LIMIT),
    ):
        await proxy.serve_forever()


def main(arguments: Sequence[str]) -> int:
    """Forward the browser's traffic."""
    parser = argparse.ArgumentParser(prog="sandbox-tools forward")
    parser.add_argument("--port", type=int, default=PROXY_PORT, help="port of the proxy")
    parser.add_argument(
        "--control-port", type=int, default=CONTROL_PORT, help="port of its control"
    )
    options = parser.parse_args(arguments)
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(options.port, options.control_port))
    return 0
