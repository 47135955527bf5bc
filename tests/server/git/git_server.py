"""A git server over HTTP on the loopback, with git's own backend and one password."""

import base64
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from sandbox_server.domain.tasks.forges import GitCredential
from tests.server.git.lfs_store import LfsStore

PASSWORD = "token-of-the-forge"
USER = "x-access-token"


@dataclass
class GitServer:
    """Repositories below a directory."""

    directory: Path
    port: int = 0
    requests: list[str] = field(default_factory=list)
    answer: HTTPStatus | None = None
    """With which every request is answered instead."""
    look: Callable[[], Iterable[bytes]] = tuple
    """Is called during each request; what it finds is in `seen`."""
    seen: list[bytes] = field(default_factory=list)
    lfs: LfsStore = field(default_factory=LfsStore)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}.git"

    def credential(self, name: str, *, password: str = PASSWORD) -> GitCredential:
        return GitCredential(url=self.url(name), username=USER, password=password)

    def path(self, name: str) -> Path:
        return self.directory / f"{name}.git"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: GitServer

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self._body())

    def do_PUT(self) -> None:
        self._answer(self._body())

    def log_message(self, *_: object) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = bytearray()
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(body)

    def _answer(self, body: bytes) -> None:
        self.served.requests.append(self.path)
        self.served.seen += self.served.look()
        if self.served.answer is not None:
            self._say(self.served.answer, {}, b"")
        elif self.served.lfs.is_object(self.path):
            self._say(*self.served.lfs.transfer(self.command, self.path, self.headers, body))
        elif not self._is_allowed():
            self._say(HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
        elif "/info/lfs/" in self.path:
            origin = f"http://127.0.0.1:{self.served.port}"
            self._say(*self.served.lfs.answer(self.path, body, origin))
        else:
            self._run_backend(body)

    def _is_allowed(self) -> bool:
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return self.headers.get("Authorization") == f"Basic {pair}"

    def _run_backend(self, body: bytes) -> None:
        asked = urlsplit(self.path)
        environment = {
            "PATH": "/usr/bin:/bin",
            "GIT_PROJECT_ROOT": str(self.served.directory),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": "/nonexistent",
            "REMOTE_USER": USER,
            "REQUEST_METHOD": self.command,
            "PATH_INFO": asked.path,
            "QUERY_STRING": asked.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        said = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=True
        ).stdout
        head, _, content = said.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = HTTPStatus(int(fields.pop("Status", "200").split(" ")[0]))
        self._say(status, fields, content)

    def _say(self, status: HTTPStatus, fields: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def running_git_server(directory: Path) -> Iterator[GitServer]:
    served = GitServer(directory)
    handler = type("Handler", (_Handler,), {"served": served})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        served.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
