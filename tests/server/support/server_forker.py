"""Starts servers by forking a process that has imported them: the imports are 1.5 s of a processor, most of a start.

test process ── request: arguments, environment, directory; stdout, stderr ──► forker ── fork ──► server
◄─ its pid; its status, once it has ended ───────────────────────
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

_LARGEST = 1 << 20
_REPOSITORY = Path(__file__).parents[3]


class ForkedProcess:
    """A server that was forked, with what tests use of subprocess.Popen."""

    def __init__(self, forker: "ServerForker", pid: int, stdout: IO[str] | None) -> None:
        self.pid = pid
        self.stdout = stdout
        self._forker = forker
        self._ended = os.pidfd_open(pid)
        self._status: int | None = None

    def poll(self) -> int | None:
        return self._find_status(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._find_status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("sandbox-server", timeout or 0)
        return status

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def _find_status(self, timeout: float | None) -> int | None:
        if self._status is None and select.select([self._ended], [], [], timeout)[0]:
            self._status = os.waitstatus_to_exitcode(self._forker.ask({"wait": self.pid}))
            os.close(self._ended)
        return self._status


class ServerForker:
    """The forker of one test process, which ends with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=_REPOSITORY,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        process.returncode = 0  # nobody waits for it: it ends when this process has

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        log: IO[str],
    ) -> ForkedProcess:
        """Start a server whose messages go to the log; its output is read from `stdout`."""
        reading, writing = os.pipe()
        try:
            pid = self._request(arguments, environment, directory, writing, log.fileno())
        finally:
            os.close(writing)
        return ForkedProcess(self, pid, os.fdopen(reading))

    def run(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        out: IO[str],
        err: IO[str],
    ) -> ForkedProcess:
        """Run a command whose output goes to files."""
        pid = self._request(arguments, environment, directory, out.fileno(), err.fileno())
        return ForkedProcess(self, pid, None)

    def _request(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        *files: int,
    ) -> int:
        wanted = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": str(directory),
        }
        return self.ask(wanted, *files)

    def ask(self, request: Mapping[str, Any], *files: int) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            return int(self._socket.recv(_LARGEST))


@cache
def server_forker() -> ServerForker:
    """Find this process's forker, and start it when a test first needs it."""
    return ServerForker()


def _fork_on_request(requests: socket.socket) -> list[str]:
    """Fork until the test process has ended; returns in each child, with its arguments."""
    while True:
        message, files, *_ = socket.recv_fds(requests, _LARGEST, 2)
        if not message:
            sys.exit()
        request = json.loads(message)
        if "wait" in request:
            _, answer = os.waitpid(request["wait"], 0)
        else:
            answer = os.fork()
            if answer == 0:
                requests.close()
                return _become(request, *files)
            for file in files:
                os.close(file)
        requests.send(str(answer).encode())


def _become(request: Mapping[str, Any], out: int, err: int) -> list[str]:
    for file, standard in ((out, 1), (err, 2)):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments: list[str] = request["arguments"]
    sys.argv = ["sandbox-server", *arguments]
    return arguments


if __name__ == "__main__":
    # Imported for the children to have: `main` imports a command's modules when it runs it.
    import sandbox_server.supervisor.serve  # noqa: F401
    from sandbox_server.cli.main import main

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the tests
    sys.exit(main(_fork_on_request(socket.socket(fileno=int(sys.argv[1])))))
