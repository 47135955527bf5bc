import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 60


@dataclass
class Answer:
    body: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    held_until: threading.Event | None = None


class Site:
    """Pages on loopback that a test makes up, and what was asked of them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.cookies: list[str] = []
        self._answers: dict[str, Answer] = {}
        self._changed = threading.Condition()

    def serve(self, path: str, body: str, **options) -> str:
        self._answers[path] = Answer(body, **options)
        return self.url + path

    def wait_until_asked(self, path: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: path in self.asked, _TIMEOUT_SECONDS)

    def answer(self, target: str, cookie: str) -> Answer:
        path = urlsplit(target).path
        with self._changed:
            if path != "/favicon.ico":
                self.asked.append(target)
                self.cookies.append(cookie)
            self._changed.notify_all()
        answer = self._answers.get(path, Answer("there is nothing", status=404))
        if answer.held_until:
            answer.held_until.wait(_TIMEOUT_SECONDS)
        return answer


@contextmanager
def running_site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = site.answer(self.path, self.headers.get("Cookie", ""))
            try:
                self.send_response(answer.status)
                for name, value in ({"Content-Type": "text/html"} | answer.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body.encode())
            except ConnectionError:  # the browser does not wait any more
                return

        def log_message(self, *_arguments: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = Site(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
