"""A large repository, and a server that gives it out as slowly as a forge on the internet."""

import base64
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

REPOSITORY = Path(__file__).parent.parent / ".cache" / "bench-repository-1.git"
BYTES_PER_SECOND = 25_000_000  # 200 Mbit/s

_FILES, _COMMITS, _CHANGED_PER_COMMIT, _CHANGING = 20_400, 4_000, 8, 2_000
_SMALL, _LARGE = (1_000, 12_200), 16_000
_PART = 64 * 1024
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


def make_repository() -> None:
    """Make a repository of about 500 MB with 20,400 files and 4,001 commits, once."""
    if REPOSITORY.exists():
        return
    unfinished = REPOSITORY.with_suffix(".new")
    run_git("init", "--quiet", "--bare", "--initial-branch=main", str(unfinished))
    with subprocess.Popen(
        ["git", "fast-import", "--quiet"],  # noqa: S607
        cwd=unfinished,
        stdin=subprocess.PIPE,
        env=_ENVIRONMENT,
    ) as importing:
        assert importing.stdin is not None
        _write_history(importing.stdin)
        importing.stdin.close()
        assert importing.wait() == 0
    run_git("repack", "-a", "-d", "--quiet", "--write-bitmap-index", cwd=unfinished)
    unfinished.rename(REPOSITORY)


def run_git(*args: str, cwd: Path | None = None) -> str:
    done = subprocess.run(  # noqa: S603
        ["git", *args],  # noqa: S607
        cwd=cwd,
        env=_ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _write_history(out: IO[bytes]) -> None:
    chance = random.Random(16)  # noqa: S311 - the same repository each time
    for commit in range(_COMMITS + 1):
        _write_commit(out, commit)
        if commit == 0:
            changed = range(_FILES)
            sizes = [chance.randint(*_SMALL) for _ in changed]
        else:
            changed = range(0)
            sizes = [_LARGE] * _CHANGED_PER_COMMIT
        numbers = list(changed) or chance.sample(range(_CHANGING), _CHANGED_PER_COMMIT)
        for number, size in zip(numbers, sizes, strict=True):
            content = base64.encodebytes(chance.randbytes(size * 3 // 4))
            out.write(b"M 644 inline %s\ndata %d\n" % (_path(number).encode(), len(content)))
            out.write(content + b"\n")


def _write_commit(out: IO[bytes], number: int) -> None:
    message = b"chore: change number %d\n" % number
    out.write(b"commit refs/heads/main\n")
    out.write(b"committer Ada <ada@example.org> %d +0000\n" % (1_700_000_000 + 60 * number))
    out.write(b"data %d\n%s" % (len(message), message))


def _path(number: int) -> str:
    return f"src/package{number % 40}/module{number // 40 % 20}/file{number}.py"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    repository: Path

    def do_GET(self) -> None:
        self._run_backend(b"")

    def do_POST(self) -> None:
        self._run_backend(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *_: object) -> None:
        pass

    def _run_backend(self, body: bytes) -> None:
        asked = urlsplit(self.path)
        below = asked.path.partition(".git")[2]  # any name is that of the one repository
        environment = {
            **_ENVIRONMENT,
            "GIT_PROJECT_ROOT": str(self.repository.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": f"/{self.repository.name}{below}",
            "QUERY_STRING": asked.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        with subprocess.Popen(
            ["git", "-c", "safe.directory=*", "-c", "http.receivePack=true", "http-backend"],  # noqa: S607
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as backend:
            assert backend.stdin is not None
            assert backend.stdout is not None
            backend.stdin.write(body)
            backend.stdin.close()
            self._pass_on(backend.stdout)

    def _pass_on(self, answer: IO[bytes]) -> None:
        self.send_response(HTTPStatus.OK)
        while line := answer.readline().strip():
            name, value = line.decode().split(": ", 1)
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        begun, sent = time.monotonic(), 0
        while part := answer.read(_PART):
            self.wfile.write(part)
            sent += len(part)
            time.sleep(max(0, begun + sent / BYTES_PER_SECOND - time.monotonic()))
        self.close_connection = True


@contextmanager
def serving(repository: Path = REPOSITORY) -> Iterator[str]:
    """Serve a repository at 200 Mbit/s, by any name; gives a URL of it."""
    handler = type("Handler", (_Handler,), {"repository": repository})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/acme/{REPOSITORY.name}"
        finally:
            server.shutdown()
            thread.join()
