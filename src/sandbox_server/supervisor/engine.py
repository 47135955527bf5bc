"""Starts and stops the engine on this machine. Only this part of the server runs as root."""

import os
import random
import select
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from sandbox_server.domain.templates import AGENT
from sandbox_server.supervisor.engine_note import (
    HOST,
    NOTE,
    EngineAddress,
    EngineNote,
    EngineNoteFile,
)
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.process_handle import ProcessHandle, ProcessIdentity
from sandbox_server.supervisor.state_directory import write_private

GIT_SERVER = "git-server"
UNUSABLE = 78  # the engine's status for unmet requirements (EX_CONFIG)

_PORTS = range(3400, 3500)  # below the ephemeral ports
_UNCONFIRMED = "engine.unconfirmed"  # exists until the start is confirmed
_STOPS_WITHIN = timedelta(seconds=30)
_UNDOES_WITHIN = timedelta(seconds=60)  # the warm pool is removed one by one
_GLANCE = timedelta(milliseconds=50)
_ATTEMPTS = 5
_LISTENING = "The engine is listening on"
_PORT_TAKEN = "is taken"
_LOG_LIMIT = 32 * 1024**2
# Passed on: the engine's settings and proxy variables.
_PASSED_ON = ("SANDBOX_ENGINE_", "PATH", "PYTHONPATH", "LANG", "LC_")
_PROXIES = frozenset({"http_proxy", "https_proxy", "no_proxy"})


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


class LocalEngine:
    """The engine of a directory. It runs in its own session and outlives the process that started it.

    Until its start is confirmed, it ends with that process, however that ends, and removes what it has
    created (`sandbox_engine.provisional_start`).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._notes = EngineNoteFile(directory / NOTE)
        self._process: ProcessHandle | None = None
        self._is_provisional = False
        self._confirmation: int | None = None  # our end of the engine's standard input

    @property
    def log(self) -> Path:
        return self._directory / "engine.log"

    @property
    def address(self) -> EngineAddress:
        key = (self._directory / "api.key").read_text().strip()
        return EngineAddress(port=self._notes.read().port, api_key=key)

    def find_running(self) -> EngineAddress | None:
        """Return the address of a running engine, also if another process guards it."""
        note = self._notes.find()
        found = None if note is None else ProcessHandle.find(note.identity)
        if note is None or found is None:
            return None
        os.close(found.fileno())
        return self.address if note.ready else None

    def fileno(self) -> int:
        """Return a descriptor that is readable once the engine has ended."""
        assert self._process is not None
        return self._process.fileno()

    @property
    def is_there(self) -> bool:
        return self._process is not None

    def ensure(self) -> None:
        """Adopt the running engine, or start one provisionally."""
        self._end_unconfirmed()
        self._process = self._find()
        if self._process is None:
            self._is_provisional = True
            self._process = self._start(self._choose_port())

    def confirm(self) -> None:
        """Make the engine permanent: it outlives this process from now on."""
        if self._confirmation is not None:
            with suppress(BrokenPipeError):  # crashed; the guard restarts it
                os.write(self._confirmation, b"\n")
        self.close_confirmation()
        self._unconfirmed.unlink(missing_ok=True)
        self._is_provisional = False

    def roll_back(self) -> None:
        """Stop an unconfirmed engine, and wait until it has removed what it created."""
        if not self._is_provisional:
            return
        self.close_confirmation()
        if self._process is not None:
            _show("stopping: the server did not start")
            _await_undo(self._process)
            self.reap()
        self._unconfirmed.unlink(missing_ok=True)

    def name_server(self, url: str) -> None:
        """Tell the engine where the server listens whose git endpoint its sandboxes reach."""
        write_private(self._directory / GIT_SERVER, url)

    def start_again(self) -> None:
        """Restart it at the same address, which its users know."""
        self._process = self._find() or self._start(self._notes.read().port)

    def wait_until_ready(self, *, starter: HasDescriptor | None = None) -> None:
        """Wait until it listens, and show its messages: it may have to build an image.

        `starter` becomes readable if the process that needs the engine ends first.
        """
        for _ in range(_ATTEMPTS):
            failure = self._watch_start(starter)
            if failure is None:
                return
            if _PORT_TAKEN not in failure:
                raise CannotServe(failure)
            self.ensure()  # another process took the port: choose again
        raise CannotServe(failure)

    def _watch_start(self, starter: HasDescriptor | None) -> str | None:
        """Raise the reason if it ended before it listened."""
        note = self._notes.read()
        with self.log.open(errors="replace") as log:
            log.seek(note.log_at)
            output = ""
            # Its own message counts: another process may answer at that port.
            while not (note.ready or _LISTENING in output):
                ended = self.has_ended(_GLANCE)
                output += (new := log.read())
                if ended and _LISTENING not in output:
                    return self._explain_end(output)
                _show(new)
                if starter is not None and select.select([starter], [], [], 0)[0]:
                    raise CannotServe("The server ended before its engine was ready.")
        self._notes.write(replace(note, ready=True))
        return None

    def has_ended(self, patience: timedelta) -> bool:
        assert self._process is not None
        return self._process.has_ended(patience)

    def reap(self) -> int | None:
        """Release the ended engine."""
        process, self._process = self._process, None
        return None if process is None else process.reap()

    def stop(self) -> None:
        """Stop it; its sandboxes are kept."""
        if self._process is not None:
            self._process.stop(patience=_STOPS_WITHIN)
            self.reap()

    def rotate_log(self) -> None:
        """Rotate the log, keeping one old file."""
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT:
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)

    def find_note(self) -> EngineNote | None:
        """Return the record of the last engine."""
        return self._notes.find()

    def _find(self) -> ProcessHandle | None:
        note = self._notes.find()
        return None if note is None else ProcessHandle.find(note.identity)

    @property
    def _unconfirmed(self) -> Path:
        return self._directory / _UNCONFIRMED

    def _end_unconfirmed(self) -> None:
        """Wait for an engine whose starter was killed to undo its start."""
        if not self._unconfirmed.exists():
            return
        left = self._find()
        if left is not None:
            _await_undo(left)
            left.reap()
        self._unconfirmed.unlink()

    def close_confirmation(self) -> None:
        """Close our end of the engine's stdin; only the process that confirms may keep it open."""
        if self._confirmation is not None:
            os.close(self._confirmation)
            self._confirmation = None

    def _start(self, port: int) -> ProcessHandle:
        self.rotate_log()
        self.close_confirmation()  # of an ended engine
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        stdin = self._open_stdin()
        try:
            log_at = os.fstat(log).st_size
            started = subprocess.Popen(  # noqa: S603
                self._command(port),
                cwd="/",
                env=_environment(),
                stdin=stdin,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)
            os.close(stdin)
        started.returncode = 0  # reaped through its pidfd, or by its new parent
        identity = ProcessIdentity.of(started.pid)
        self._notes.write(EngineNote(**asdict(identity), port=port, log_at=log_at))
        return ProcessHandle(identity, os.pidfd_open(started.pid))

    def _open_stdin(self) -> int:
        if not self._is_provisional:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._unconfirmed.touch(mode=0o600)
        stdin, self._confirmation = os.pipe()
        return stdin

    def _command(self, port: int) -> list[str]:
        return [
            *(sys.executable, "-m", "sandbox_engine", "serve"),
            *("--host", HOST, "--port", str(port), "--state-dir", str(self._directory)),
            *(["--provisional"] if self._is_provisional else []),
        ]

    def _choose_port(self) -> int:
        """Keep the last port: it is part of the sandboxes' addresses."""
        note = self._notes.find()
        if note is not None and _is_free(note.port):
            return note.port
        # Random: concurrent starts mostly choose different ports.
        for port in (_PORTS[0], *random.sample(_PORTS, len(_PORTS))):
            if _is_free(port):
                return port
        raise CannotServe(f"No free port for the engine between {_PORTS[0]} and {_PORTS[-1]}.")

    def _explain_end(self, output: str) -> str:
        status = self.reap()
        if status == UNUSABLE:
            return output.strip()
        return f"The engine exited ({status}). End of {self.log}:\n{output[-2000:]}"


def _await_undo(engine: ProcessHandle) -> None:
    if not engine.has_ended(_UNDOES_WITHIN):
        engine.stop(patience=_STOPS_WITHIN)


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def _environment() -> dict[str, str]:
    passed_on = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_PASSED_ON) or name.lower() in _PROXIES
    }
    return {"SANDBOX_ENGINE_READY_TEMPLATES": AGENT, **passed_on}


def _show(text: str) -> None:
    for line in text.splitlines():
        if not line.startswith(
            ("Paste this", "  E2B_API_KEY")
        ):  # instructions for direct use of the engine
            sys.stderr.write(f"engine: {line}\n")
    sys.stderr.flush()
