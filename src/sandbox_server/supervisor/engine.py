"""The engine on this machine, as whoever may start it sees it. Only this part of the server is ever root."""

import hashlib
import json
import os
import random
import select
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from sandbox_server.domain.templates import AGENT
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.living import Identity, LivingProcess
from sandbox_server.supervisor.state_directory import write_private

HOST = "127.0.0.1"
NOTE = "engine.json"
UNUSABLE = 78  # how the engine ends where the machine lacks something (EX_CONFIG)

_PORTS = range(3400, 3500)  # below those that a machine gives to outgoing connections
_UNCONFIRMED = "engine.unconfirmed"  # there while the start that the engine belongs to may yet fail
_STOPS_WITHIN = timedelta(seconds=30)
_UNDOES_WITHIN = timedelta(seconds=60)  # ready sandboxes are removed one after the other
_GLANCE = timedelta(milliseconds=50)
_ATTEMPTS = 5
_LISTENING = "The engine is listening on"
_PORT_TAKEN = "is taken"
_LOG_LIMIT = 32 * 1024**2
# Where the engine's own settings, and the way to the internet, are read from.
_PASSED_ON = ("SANDBOX_ENGINE_", "PATH", "PYTHONPATH", "LANG", "LC_")
_PROXIES = frozenset({"http_proxy", "https_proxy", "no_proxy"})


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class EngineAddress:
    """Where an engine listens, and the key to all its sandboxes."""

    port: int
    api_key: str = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def identity(self) -> str:
        """Tell this engine from others, wherever it listens, without telling its key."""
        return hashlib.sha256(b"engine identity" + self.api_key.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class EngineNote:
    """What is kept of an engine for those who guard it later."""

    pid: int
    began: str
    port: int
    log_at: int  # where in the log its own messages begin
    ready: bool = False

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.began)


class LocalEngine:
    """The engine of a directory. It is in a session of its own and outlives whoever started it.

    Until its start is confirmed it does not: it ends with the process that started it, however that
    ends, and removes what it has made (`sandbox_engine.provisional_start`).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: LivingProcess | None = None
        self._is_provisional = False
        self._confirmation: int | None = None  # our end of the engine's standard input

    @property
    def log(self) -> Path:
        return self._directory / "engine.log"

    @property
    def address(self) -> EngineAddress:
        key = (self._directory / "api.key").read_text().strip()
        return EngineAddress(port=self._note().port, api_key=key)

    def find_running(self) -> EngineAddress | None:
        """Find where it listens, if it does, though somebody else looks after it."""
        note = self.find_note()
        found = None if note is None else LivingProcess.find(note.identity)
        if note is None or found is None:
            return None
        os.close(found.fileno())
        return self.address if note.ready else None

    def fileno(self) -> int:
        """Be readable once the engine has ended."""
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
            with suppress(BrokenPipeError):  # it has crashed; it is started again
                os.write(self._confirmation, b"\n")
        self.close_confirmation()
        self._unconfirmed.unlink(missing_ok=True)
        self._is_provisional = False

    def roll_back(self) -> None:
        """End an engine whose start was not confirmed, and wait until it has removed what it has made."""
        if not self._is_provisional:
            return
        self.close_confirmation()
        if self._process is not None:
            _show("stopping, since the server did not start")
            _await_undo(self._process)
            self.bury()
        self._unconfirmed.unlink(missing_ok=True)

    def start_again(self) -> None:
        """Start it where it was: those who use it know no other address."""
        self._process = self._find() or self._start(self._note().port)

    def wait_until_ready(self, *, starter: HasDescriptor | None = None) -> None:
        """Wait until it listens, and show what it says meanwhile: it may have an image to build.

        `starter` becomes readable if the process that wants the engine ends before.
        """
        for _ in range(_ATTEMPTS):
            failure = self._watch_start(starter)
            if failure is None:
                return
            if _PORT_TAKEN not in failure:
                raise CannotServe(failure)
            self.ensure()  # another was quicker to take the port: now there is another choice
        raise CannotServe(failure)

    def _watch_start(self, starter: HasDescriptor | None) -> str | None:
        """Tell why it ended, if it did before it listened."""
        note = self._note()
        with self.log.open(errors="replace") as log:
            log.seek(note.log_at)
            said = ""
            # Its own word is what counts: at that port another may be the one that answers.
            while not (note.ready or _LISTENING in said):
                ended = self.has_ended(_GLANCE)
                said += (new := log.read())
                if ended and _LISTENING not in said:
                    return self._explain_end(said)
                _show(new)
                if starter is not None and select.select([starter], [], [], 0)[0]:
                    raise CannotServe("The server ended before its engine was ready.")
        self._write_note(replace(note, ready=True))
        return None

    def has_ended(self, patience: timedelta) -> bool:
        assert self._process is not None
        return self._process.has_ended(patience)

    def bury(self) -> int | None:
        """Forget the engine that has ended."""
        process, self._process = self._process, None
        return None if process is None else process.bury()

    def stop(self) -> None:
        """End it; its sandboxes stay as they are."""
        if self._process is not None:
            self._process.stop(patience=_STOPS_WITHIN)
            self.bury()

    def rotate_log(self) -> None:
        """Keep the newest messages, and those before them once."""
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT:
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)

    def find_note(self) -> EngineNote | None:
        """Give what is known of the engine that was started last."""
        try:
            return self._note()
        except FileNotFoundError:
            return None

    def _find(self) -> LivingProcess | None:
        note = self.find_note()
        return None if note is None else LivingProcess.find(note.identity)

    @property
    def _unconfirmed(self) -> Path:
        return self._directory / _UNCONFIRMED

    def _end_unconfirmed(self) -> None:
        """Wait for the end of an engine whose starter was killed, which is undoing its start."""
        if not self._unconfirmed.exists():
            return
        left = self._find()
        if left is not None:
            _await_undo(left)
            left.bury()
        self._unconfirmed.unlink()

    def close_confirmation(self) -> None:
        """Close our end of the engine's standard input, as every process has to but the one that may confirm."""
        if self._confirmation is not None:
            os.close(self._confirmation)
            self._confirmation = None

    def _start(self, port: int) -> LivingProcess:
        self.rotate_log()
        self.close_confirmation()  # of one that has ended
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
        started.returncode = 0  # it is buried by its pidfd, or by whoever inherits it
        identity = Identity.of(started.pid)
        self._write_note(EngineNote(**asdict(identity), port=port, log_at=log_at))
        return LivingProcess(identity, os.pidfd_open(started.pid))

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

    def _note(self) -> EngineNote:
        return EngineNote(**json.loads((self._directory / NOTE).read_text()))

    def _write_note(self, note: EngineNote) -> None:
        write_private(self._directory / NOTE, json.dumps(asdict(note)))

    def _choose_port(self) -> int:
        """Keep the one of last time: sandboxes are known by addresses that it is part of."""
        note = self.find_note()
        if note is not None and _is_free(note.port):
            return note.port
        # Of several that are started at once, most choose differently.
        for port in (_PORTS[0], *random.sample(_PORTS, len(_PORTS))):
            if _is_free(port):
                return port
        raise CannotServe(f"No port of {_PORTS[0]} to {_PORTS[-1]} is free for the engine.")

    def _explain_end(self, said: str) -> str:
        status = self.bury()
        if status == UNUSABLE:
            return said.strip()
        return f"The engine ended ({status}). The end of {self.log}:\n{said[-2000:]}"


def _await_undo(engine: LivingProcess) -> None:
    if not engine.has_ended(_UNDOES_WITHIN):
        engine.stop(patience=_STOPS_WITHIN)


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def _environment() -> dict[str, str]:
    given = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_PASSED_ON) or name.lower() in _PROXIES
    }
    return {"SANDBOX_ENGINE_READY_TEMPLATES": AGENT, **given}


def _show(text: str) -> None:
    for line in text.splitlines():
        if not line.startswith(("Paste this", "  E2B_API_KEY")):  # meant for who starts it alone
            sys.stderr.write(f"engine: {line}\n")
    sys.stderr.flush()
