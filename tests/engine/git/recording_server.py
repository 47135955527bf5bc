import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Recorded:
    """A request as a server received it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class RecordingServer:
    """An HTTP server on loopback that answers everything with the line `git` and records what it was asked."""

    url: str = ""
    requests: list[Recorded] = field(default_factory=list)


@contextmanager
def recording_server() -> Iterator[RecordingServer]:
    recorder = RecordingServer()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(recorder))
    recorder.url = f"http://127.0.0.1:{http.server_port}"
    serving = threading.Thread(target=http.serve_forever)
    serving.start()
    try:
        yield recorder
    finally:
        http.shutdown()
        serving.join()
        http.server_close()


def _handler(recorder: RecordingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._record(b"")

        def do_POST(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                self._record(b"".join(iter(self._chunk, b"")))
            else:
                self._record(self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def _chunk(self) -> bytes:
            size = int(self.rfile.readline(), 16)
            chunk = self.rfile.read(size)
            self.rfile.readline()
            return chunk

        def _record(self, body: bytes) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            recorder.requests.append(Recorded(self.command, self.path, headers, body))
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"git\n")

        def log_message(self, *_: object) -> None:
            pass

    return Handler
