"""A git server on a socket: `git http-backend`, behind a check of the token in the password."""

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from tests.server.git.lfs_store import LfsStore

HERE = Path(__file__).parent
_CHUNK = 64 * 1024
_HOOKS = {"post-receive": "mirror_hook.py", "update": "workflow_hook.py"}


@dataclass(frozen=True)
class GitAccessOf:
    """What a token may do in a repository."""

    read: bool = False
    write: bool = False
    workflows: bool = False


Judge = Callable[[str | None, str], GitAccessOf]
"""Judges a password and the name of a repository."""


@dataclass
class GitServer:
    """Bare repositories below a directory, at `{url}/{owner}/{name}.git`."""

    url: str
    directory: Path
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    """Method, path with query and status of each."""
    is_down: bool = False
    """Answer 503 to everything."""
    lfs: LfsStore = field(default_factory=LfsStore)

    def add_repository(self, full_name: str) -> Path:
        path = self.directory / f"{full_name}.git"
        git("init", "--quiet", "--bare", "--initial-branch=main", str(path))
        for key in ("http.receivepack", "uploadpack.allowFilter", "receive.advertisePushOptions"):
            git("-C", str(path), "config", key, "true")
        for name, script in _HOOKS.items():
            hook = path / "hooks" / name
            hook.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / script}" "$@"\n')
            hook.chmod(0o755)
        return path

    def head(self, full_name: str, ref: str) -> str | None:
        """Find the commit of a branch."""
        found = git(
            *("-C", str(self.directory / f"{full_name}.git"), "rev-parse", "--verify", "--quiet"),
            f"refs/heads/{ref}",
            check=False,
        )
        return found or None

    def branches(self, full_name: str) -> list[str]:
        path = str(self.directory / f"{full_name}.git")
        return git("-C", path, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    def read(self, full_name: str, ref: str, path: str) -> str:
        """Read a file of a branch."""
        return git("-C", str(self.directory / f"{full_name}.git"), "show", f"{ref}:{path}")

    def url_of(self, full_name: str, password: str | None = None) -> str:
        """Return the URL of a repository, for a person's git with the password in it."""
        parts = urlsplit(self.url)
        login = "" if password is None else f"x-access-token:{password}@"
        return f"{parts.scheme}://{login}{parts.netloc}/{full_name}.git"


@contextmanager
def running_git_server(
    directory: Path, judge: Judge, *, envs: Mapping[str, str] | None = None
) -> Iterator[GitServer]:
    """Serve repositories below the directory; `envs` are seen by the hooks."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    git_server = GitServer(f"http://127.0.0.1:{server.server_port}", directory)
    _Handler.states[server.server_port] = (git_server, judge, dict(envs or {}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield git_server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def git(*arguments: str, check: bool = True, **options: Any) -> str:
    """Run git without the configuration of this machine; gives what it printed."""
    envs = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_TERMINAL_PROMPT": "0",
        "TZ": "UTC",
        **{
            f"GIT_{role}_{part}": value
            for role in ("AUTHOR", "COMMITTER")
            for part, value in (("NAME", "Octocat"), ("EMAIL", "octocat@example.org"))
        },
        **options.pop("envs", {}),
    }
    done = subprocess.run(
        ["git", *arguments],
        env=envs,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
    if check and done.returncode:
        raise RuntimeError(f"git {arguments[0]}: {done.stderr}")
    printed: str = done.stdout
    return printed.strip()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    states: dict[int, tuple[GitServer, Judge, dict[str, str]]] = {}  # noqa: RUF012 - by port

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        """Keep tests silent."""

    def _answer(self) -> None:
        server, judge, envs = self.states[self.server.server_address[1]]  # type: ignore[index]
        parts = urlsplit(self.path)
        full_name = unquote(parts.path).lstrip("/").partition(".git/")[0]
        password = self._password()
        access = judge(password, full_name)
        is_push = "git-receive-pack" in self.path
        if server.is_down:
            status = self._refuse(503, "The forge is down.")
        elif server.lfs.is_object(self.path):
            said = server.lfs.transfer(self.command, self.path, self.headers, self._whole())
            status = self._send(*said)
        elif not (access.write if is_push else access.read):
            known = password is not None
            status = self._refuse(
                403 if known and access.read else 404 if known else 401, "No access."
            )
        elif "/info/lfs/" in self.path:
            status = self._send(*server.lfs.answer(parts.path, self._whole(), server.url))
        else:
            status = self._pass_on(
                server,
                parts,
                {
                    **envs,
                    "GIT_MAY_WORKFLOWS": str(int(access.workflows)),
                    "MIRROR_REPOSITORY": full_name,
                },
            )
        server.requests.append((self.command, self.path, status))

    def _password(self) -> str | None:
        scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if scheme != "Basic":  # as GitHub: a token as Bearer is not for git
            return None
        return base64.b64decode(encoded).decode().partition(":")[2]

    def _refuse(self, status: int, said: str) -> int:
        for _ in self._body():
            pass
        headers = {"WWW-Authenticate": 'Basic realm="git"'} if status == 401 else {}
        return self._send(status, {**headers, "Content-Type": "text/plain"}, said.encode())

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> int:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return status

    def _whole(self) -> bytes:
        return b"".join(self._body())

    def _pass_on(self, server: GitServer, parts: Any, envs: Mapping[str, str]) -> int:
        backend = subprocess.Popen(
            ["git", "http-backend"],
            env={
                "PATH": os.environ["PATH"],
                "GIT_CONFIG_NOSYSTEM": "1",
                "HOME": "/nonexistent",
                "GIT_PROJECT_ROOT": str(server.directory),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": unquote(parts.path),
                "QUERY_STRING": parts.query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REMOTE_USER": "x",
                "REMOTE_ADDR": "127.0.0.1",
                **envs,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with backend:
            assert backend.stdin is not None
            assert backend.stdout is not None
            feeding = threading.Thread(target=self._feed, args=(backend.stdin,))
            feeding.start()
            status = self._relay(backend.stdout)
            feeding.join()
        return status

    def _feed(self, stdin: IO[bytes]) -> None:
        try:
            for chunk in self._body():
                stdin.write(chunk)
            stdin.close()
        except BrokenPipeError:
            self.close_connection = True

    def _body(self) -> Iterator[bytes]:
        """Read the request's body, which git sends in chunks if it is large."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            chunk = self.rfile.read(min(left, _CHUNK))
            left -= len(chunk)
            yield chunk

    def _relay(self, stdout: IO[bytes]) -> int:
        status, headers = 200, []
        while line := stdout.readline().strip():
            name, _, value = line.decode().partition(": ")
            if name.lower() == "status":
                status = int(value.split()[0])
            else:
                headers.append((name, value))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while chunk := stdout.read1(_CHUNK):  # type: ignore[attr-defined]
            self.wfile.write(chunk)
        return status
