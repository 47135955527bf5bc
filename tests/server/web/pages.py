import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """Pages of a foreign origin."""

    origin: str
    pages: dict[str, str]
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Requested paths with their headers."""


@contextmanager
def running_site(**pages: str) -> Iterator[Site]:
    """Serve pages at `/NAME` under another host name."""
    site = Site("", pages)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/favicon.ico":  # requested by browsers on their own
                self.send_response(204)
                self.end_headers()
                return
            site.asked.append((self.path, dict(self.headers.items())))
            page = site.pages.get(self.path.strip("/"))
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write((page or "").encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.origin = f"http://localhost:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield site
        finally:
            server.shutdown()
            serving.join()
