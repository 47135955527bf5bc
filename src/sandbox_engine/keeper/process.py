"""The process that starts every program and command for the engine, and outlives it.

It forks, holds descriptors and reaps; it never reads what a command writes. Messages are JSON over
a SOCK_SEQPACKET socket, one engine at a time; descriptors travel by SCM_RIGHTS.

    engine                                                     keeper
      run          id argv timeout, with stdio              ->   ran id status timed_out
      start        id key argv pid_file console_socket
                   owner stdin timeout                      ->   started id <command>
      close-stdin  key                                           exited key status
      forget       key
      namespaces   id user net first_id ids                 ->   made id
      (connects)                                            ->   held <command> for each, ready mounts
      (anything)                                            ->   failed id error

    <command> = key pid host_pid status names, with a descriptor for each name
"""

import argparse
import fcntl
import logging
import os
import resource
import selectors
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox_engine.keeper.children import (
    End,
    HeldCommand,
    Launch,
    Program,
    inner_pid,
)
from sandbox_engine.keeper.message_socket import Message, MessageSocket
from sandbox_engine.keeper.namespaces import make_namespaces
from sandbox_engine.system import syscalls

SOCKET_NAME = "keeper.sock"
PROTOCOL = 1  # the messages above; a running keeper may be of an older engine
STDIO = ("stdin", "stdout", "stderr")

_LOCK_NAME = "keeper.lock"
_LINGER_SECONDS = 3.0
_WAKEUP_BYTES = 4096
_OPEN_FILES = 65_536
_IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE)
# Children inherit ignored signals; Python itself ignores SIGPIPE and SIGXFSZ.
_DEFAULTED_SIGNALS = (*_IGNORED_SIGNALS, signal.SIGXFSZ)

log = logging.getLogger("keeper")


class Keeper:
    """A single-threaded loop over the engine's socket and ending children."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._link: MessageSocket | None = None
        self._lonely_since = time.monotonic()
        self._greeting_due = False
        self._programs: dict[int, Program] = {}
        self._launches: dict[int, tuple[Launch, MessageSocket | None]] = {}
        self._commands: dict[str, HeldCommand] = {}
        self._keys: dict[int, str] = {}
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._operations: dict[str, Callable[[Message, Sequence[int]], None]] = {
            "run": self._run,
            "start": self._start,
            "close-stdin": self._close_stdin,
            "forget": self._forget,
            "namespaces": self._namespaces,
        }

    def serve(self) -> None:
        """Serve until no engine is connected and no child is left."""
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        wakeup = self._watch_children()
        while not self._is_over():
            for key, events in self._selector.select(self._patience()):
                key.data(events)
            self._expire()
        for end in wakeup:
            end.close()

    def _watch_children(self) -> tuple[socket.socket, socket.socket]:
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

        def woken(_events: int) -> None:
            with suppress(BlockingIOError):
                reader.recv(_WAKEUP_BYTES)
            self._reap()

        self._selector.register(reader, selectors.EVENT_READ, woken)
        return reader, writer

    def _patience(self) -> float | None:
        waits = [program.deadline - time.monotonic() for program in self._programs.values()]
        if self._link is None:
            waits.append(1.0)
        soonest = min(waits, default=float("inf"))
        return None if soonest == float("inf") else max(0.0, soonest)

    def _expire(self) -> None:
        now = time.monotonic()
        for program in self._programs.values():
            if program.deadline <= now:
                program.expire()

    def _is_over(self) -> bool:
        if self._link is not None or time.monotonic() - self._lonely_since < _LINGER_SECONDS:
            return False
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def _accept(self, _events: int) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, uid, _ = struct.unpack("iII", credentials)
        if uid not in {0, os.getuid()}:
            connection.close()
            return
        self._unlink()
        self._selector.register(connection, selectors.EVENT_READ, self._receive)
        self._link = MessageSocket(connection, lambda full: self._await_room(connection, full))
        self._greeting_due = True
        self._print_instructions()

    def _unlink(self) -> None:
        if self._link is not None:
            self._selector.unregister(self._link.connection)
            self._link.close()
            self._link = None
            self._lonely_since = time.monotonic()

    def _await_room(self, connection: socket.socket, full: bool) -> None:  # noqa: FBT001
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if full else 0)
        self._selector.modify(connection, events, self._receive)

    def _print_instructions(self) -> None:
        """Hand over all commands once no start for an earlier engine is in progress."""
        link = self._link
        if link is None or not self._greeting_due:
            return
        if any(asker is not link for _, asker in self._launches.values()):
            return
        self._greeting_due = False
        for command in self._commands.values():
            link.send({"event": "held", **command.describe()}, list(command.descriptors.values()))
        link.send({"event": "ready", "protocol": PROTOCOL, "mounts": mount_namespace()})

    def _receive(self, events: int) -> None:
        link = self._link
        if link is not None and events & selectors.EVENT_WRITE:
            link.flush()
        while link is not None and link is self._link:
            try:
                received = link.receive()
            except BlockingIOError:
                return
            if received is None:
                self._unlink()
            else:
                self._obey(*received)

    def _obey(self, message: Message, descriptors: Sequence[int]) -> None:
        try:
            self._operations[message["op"]](message, descriptors)
        except Exception as error:  # a bad request must not end the parent of all commands
            log.exception("%s", message["op"])
            self._tell({"event": "failed", "id": message.get("id"), "error": str(error)})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _tell(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        if self._link is not None:
            self._link.send(message, descriptors)

    def _run(self, message: Message, stdio: Sequence[int]) -> None:
        asker = self._link

        def ended(end: End) -> None:
            if asker is self._link:
                outcome = {"status": end.status, "timed_out": end.timed_out}
                self._tell({"event": "ran", "id": message["id"], **outcome})

        self._spawn(message, stdio, ended)

    def _spawn(self, message: Message, stdio: Sequence[int], ended: Callable[[End], None]) -> int:
        argv = message["argv"]
        pid = os.posix_spawnp(
            argv[0],
            argv,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, descriptor, at) for at, descriptor in enumerate(stdio)
            ],
            setpgroup=0,
            setsigdef=_DEFAULTED_SIGNALS,
        )
        self._programs[pid] = Program(pid, ended, time.monotonic() + message["timeout"])
        return pid

    def _start(self, message: Message, _descriptors: Sequence[int]) -> None:
        console = message["console_socket"]
        launch = Launch(
            id=message["id"],
            key=message["key"],
            pid_file=Path(message["pid_file"]),
            console_path=None if console is None else Path(console),
            owner=message["owner"],
        )
        try:
            launch.open(stdin=message["stdin"])
            stdio = [launch.theirs.get(name, self._null) for name in STDIO]
            pid = self._spawn(message, stdio, lambda end: self._launched(pid, end))
            self._launches[pid] = (launch, self._link)
        except OSError:
            launch.clean_up()
            launch.fail()
            raise
        finally:
            launch.close_theirs()

    def _launched(self, pid: int, end: End) -> None:
        launch, asker = self._launches.pop(pid)
        error = "the runtime did not start the command in time" if end.timed_out else ""
        command: HeldCommand | None = None
        if end.succeeded:
            try:
                command = launch.complete()
            except (OSError, ValueError) as failure:
                error = f"the command could not be taken over: {failure}"
        launch.clean_up()
        if command is None:
            error = launch.fail() or error or f"the runtime ended with status {end.status}"
            answer, descriptors = {"event": "failed", "error": error}, []
        else:
            self._keep(command)
            answer, descriptors = command.describe(), list(command.descriptors.values())
            answer["event"] = "started"
        if asker is self._link:
            self._tell({**answer, "id": launch.id}, descriptors)
        self._print_instructions()

    def _keep(self, command: HeldCommand) -> None:
        self._commands[command.key] = command
        if command.status is None:
            self._keys[command.host_pid] = command.key

    def _close_stdin(self, message: Message, _descriptors: Sequence[int]) -> None:
        if command := self._commands.get(message["key"]):
            command.close("stdin")

    def _forget(self, message: Message, _descriptors: Sequence[int]) -> None:
        if command := self._commands.pop(message["key"], None):
            if self._keys.get(command.host_pid) == command.key:
                del self._keys[command.host_pid]
            command.close_all()

    def _namespaces(self, message: Message, _descriptors: Sequence[int]) -> None:
        make_namespaces(
            Path(message["user"]),
            Path(message["net"]),
            first_id=message["first_id"],
            ids=message["ids"],
        )
        self._tell({"event": "made", "id": message["id"]})

    def _reap(self) -> None:
        while (pid := _find_dead_child()) is not None:
            if program := self._programs.pop(pid, None):
                _, status = os.waitpid(pid, 0)
                program.ended(End(status, program.timed_out))
            elif key := self._keys.pop(pid, None):
                _, status = os.waitpid(pid, 0)
                self._commands[key].status = status
                self._tell({"event": "exited", "key": key, "status": status})
            else:
                self._reap_unknown(pid)

    def _reap_unknown(self, pid: int) -> None:
        """Reap a container's init process, or a command that ended before the runtime exited."""
        launches = (launch for launch, _ in self._launches.values())
        launch = next((launch for launch in launches if launch.read_host_pid() == pid), None)
        inner = inner_pid(pid) if launch else 0
        _, status = os.waitpid(pid, 0)
        if launch:
            launch.record_end(pid, status, pid=inner)


def mount_namespace() -> str:
    """Return the id of the mount namespace.

    Programs of other mount namespaces cannot be started.
    """
    return str(Path("/proc/self/ns/mnt").readlink())


def _find_dead_child() -> int | None:
    # WNOWAIT keeps it as a zombie: its pid stays reserved until it is identified.
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.setblocking(False)
    listener.bind(str(path))
    listener.listen()
    return listener


def _settle_in() -> None:
    os.setsid()
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    syscalls.become_subreaper()
    # Inherited by all children. The runtime does not set it: that needs a capability over the
    # sandbox's user namespace, which root does not always have.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if most == resource.RLIM_INFINITY else min(most, _OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    parser = argparse.ArgumentParser(prog="sandbox_engine.keeper.process")
    parser.add_argument("--run-dir", type=Path, required=True)
    run_dir: Path = parser.parse_args().run_dir
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    lock = os.open(run_dir / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another keeper serves this directory
    listener = _listen(run_dir / SOCKET_NAME)
    directory = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # The engine waits for the started process, which exits once the socket accepts connections.
    if os.fork() != 0:
        os._exit(0)
    _settle_in()
    try:
        Keeper(listener).serve()
    finally:
        # Inside the own directory: a reset may have removed it, and another keeper have created one
        # at the same path.
        with suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=directory)


if __name__ == "__main__":
    main()
