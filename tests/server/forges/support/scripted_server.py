"""A small HTTP server on a socket that answers what a test says, and keeps what it was sent."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class SentRequest:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    document: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    def content(self) -> bytes:
        return json.dumps(self.document).encode() if self.body is None else self.body


Script = Callable[[SentRequest], Reply]


@dataclass
class ScriptedServer:
    url: str
    script: Script = field(default=lambda _: Reply({}))
    sent: list[SentRequest] = field(default_factory=list)

    @property
    def requests(self) -> list[tuple[dict[str, str], bytes]]:
        """Headers and body of each request."""
        return [(each.headers, each.body) for each in self.sent]

    def routes(self, table: Mapping[tuple[str, str], Any]) -> None:
        """Answer by method and path; a value is a document, a `Reply`, or a function of the request."""

        def script(request: SentRequest) -> Reply:
            found = table.get((request.method, request.path))
            if callable(found):
                found = found(request)
            if found is None:
                return Reply({"message": "Not Found"}, status=404)
            return found if isinstance(found, Reply) else Reply(found)

        self.script = script


@contextmanager
def scripted_server(tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    if tls is not None:
        http.socket = tls.wrap_socket(http.socket, server_side=True)
    server = ScriptedServer(f"http{'s' if tls else ''}://127.0.0.1:{http.server_port}")
    http.scripted = server  # type: ignore[attr-defined]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Keep tests silent."""

    def _answer(self) -> None:
        scripted: ScriptedServer = self.server.scripted  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = SentRequest(
            self.command, parts.path, parse_qs(parts.query), dict(self.headers), body
        )
        scripted.sent.append(request)
        reply = scripted.script(request)
        content = reply.content()
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - names of the library
