import asyncio
import itertools
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox_engine.keeper.held_command import HeldCommand
from sandbox_engine.keeper.message_socket import Message, MessageSocket
from sandbox_engine.keeper.process import PROTOCOL, SOCKET_NAME, mount_namespace
from sandbox_engine.machine.restrictions import Restrictions
from sandbox_engine.system.errors import CannotRun, EngineError
from sandbox_engine.system.log import get_logger
from sandbox_engine.system.subprocesses import Completed

log = get_logger(__name__)

_START_SECONDS = 30.0
_CONNECT_SECONDS = _START_SECONDS + 10  # it may be waiting for commands of an earlier engine
_RETRY_SECONDS = 0.02
_OF_ANOTHER_VERSION = CannotRun(
    "the running keeper belongs to another version of the engine and is incompatible. Start that "
    "version to continue its sandboxes or to reset it."
)
_ELSEWHERE = CannotRun(
    "the running keeper is in another mount namespace. Start the engine in the namespace of the "
    "earlier one, or end that keeper with its sandboxes. A systemd unit must not give the "
    "engine mounts of its own (PrivateTmp, ProtectSystem)."
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class KeeperLost(EngineError):
    """The keeper died during a request; whether the request was carried out is unknown."""

    code = "keeper_lost"


class LaunchFailed(Exception):
    """The OCI runtime failed to start a command; the message is the runtime's."""


class Keeper:
    """Client of the keeper; a dead keeper is replaced at the next call."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.commands_dir = run_dir / "commands"
        self._loop = asyncio.get_running_loop()
        self._link: MessageSocket | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._connecting = asyncio.Lock()
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._held: dict[str, HeldCommand] = {}
        self._unclaimed: dict[str, HeldCommand] = {}

    @classmethod
    async def connect(cls, run_dir: Path) -> "Keeper":
        """Connect to the keeper of this directory; start one if none answers."""
        keeper = cls(run_dir)
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        keeper.commands_dir.mkdir(mode=0o700, exist_ok=True)
        await keeper._connected()
        await keeper._replace_if_restricted()
        return keeper

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 60.0,
    ) -> Completed:
        """Run a program to its end, even if its children keep its output open."""
        with _memory_file(stdin) as stdin_file, _memory_file() as out, _memory_file() as err:
            request = {"op": "run", "argv": list(argv), "timeout": timeout}
            answer = await self._ask(request, (stdin_file, out, err))
            if answer["event"] == "failed":
                raise OSError(f"{argv[0]}: {answer['error']}")
            if answer["timed_out"]:
                raise TimeoutError(f"{argv[0]} did not end within {timeout:g} s")
            returncode = os.waitstatus_to_exitcode(answer["status"])
            return Completed(returncode, _contents(out), _contents(err))

    async def start(
        self,
        key: str,
        argv: Sequence[str],
        *,
        pid_file: Path,
        console_socket: Path | None,
        stdin: bool,
        owner: int,
    ) -> HeldCommand:
        """Start a command by a runtime's detached exec; `owner` is its uid on the host.

        The key consists of the holder's name, a dash and a unique part.
        """
        request = {
            "op": "start",
            "key": key,
            "argv": list(argv),
            "pid_file": str(pid_file),
            "console_socket": None if console_socket is None else str(console_socket),
            "stdin": stdin,
            "owner": owner,
            "timeout": _START_SECONDS,
        }
        answer = await self._ask(request)
        if answer["event"] == "failed":
            raise LaunchFailed(answer["error"])
        return self._held[key]

    async def make_namespaces(self, user: Path, net: Path, *, first_id: int, ids: int) -> None:
        """Create a user namespace and a network namespace owned by it, bound to two empty files."""
        request = {"op": "namespaces", "user": str(user), "net": str(net)}
        answer = await self._ask({**request, "first_id": first_id, "ids": ids})
        if answer["event"] == "failed":
            raise OSError(answer["error"])

    def adopted(self, owner: str) -> list[HeldCommand]:
        """Adopt the commands of one owner that outlived an earlier engine."""
        keys = [key for key, held in self._unclaimed.items() if held.owner == owner]
        return [self._unclaimed.pop(key) for key in keys]

    def release_unclaimed(self) -> None:
        """Release commands of earlier engines that were not adopted, and remove their files."""
        for held in tuple(self._unclaimed.values()):
            self.forget(held)
        for path in self.commands_dir.iterdir():
            if path.name.partition(".")[0] not in self._held:
                path.unlink(missing_ok=True)

    def close_stdin(self, held: HeldCommand) -> None:
        """Close the command's standard input here and in the keeper."""
        held.close("stdin")
        self._tell({"op": "close-stdin", "key": held.key})

    def forget(self, held: HeldCommand) -> None:
        """Release a command's descriptors and status here and in the keeper."""
        held.close_all()
        self._unclaimed.pop(held.key, None)
        if self._held.pop(held.key, None):
            self._tell({"op": "forget", "key": held.key})

    async def close(self) -> None:
        """Disconnect; the keeper continues to hold all commands."""
        self._disconnect()
        for held in self._held.values():
            held.close_all()
        self._held.clear()
        self._unclaimed.clear()

    async def _ask(self, request: Message, descriptors: Sequence[int] = ()) -> Message:
        link = await self._connected()
        number = next(self._ids)
        answer: asyncio.Future[Message] = self._loop.create_future()
        self._answers[number] = answer
        try:
            link.send({**request, "id": number}, descriptors)
            return await answer
        finally:
            del self._answers[number]

    def _tell(self, message: Message) -> None:
        if self._link is not None:
            self._link.send(message)

    async def _connected(self) -> MessageSocket:
        if self._link is not None and self._ready.done():
            return self._link
        async with self._connecting:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    while self._link is None:
                        if not await self._reach():
                            await asyncio.sleep(_RETRY_SECONDS)
            except TimeoutError as error:
                raise KeeperLost(f"no keeper answers in {self._run_dir}") from error
            return self._link

    async def _replace_if_restricted(self) -> None:
        """Replace a keeper without children that was started under other restrictions.

        A keeper outlives its engine by seconds. Otherwise an engine restarted without the seccomp
        filters of its unit would still start sandboxes under them.
        """
        status = (await self.run(["cat", "/proc/self/status"])).stdout.decode()
        inherited, ours = Restrictions.parse(status), Restrictions.of_this_process()
        if inherited == ours:
            return
        pid = int(re.findall(r"^PPid:\t(\d+)$", status, re.MULTILINE)[0])
        if self._held or _has_children(pid):
            log.warning(
                "The keeper runs under other restrictions than the engine. Sandboxes inherit those of the "
                "keeper until the last sandbox has ended and the engine is restarted.",
                keeper=inherited,
                engine=ours,
            )
            return
        self._disconnect()
        await _end(pid)
        await self._connected()
        log.info("replaced keeper", restrictions_before=inherited, restrictions=ours)

    async def _reach(self) -> bool:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            connection.connect(str(self._run_dir / SOCKET_NAME))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            await asyncio.to_thread(self._start_keeper)
            return False
        except BlockingIOError:  # full queue: other engines are connecting as well
            connection.close()
            return False
        self._attach(connection)
        try:
            await self._ready
        except KeeperLost:  # it was exiting
            return False
        return True

    def _start_keeper(self) -> None:
        with (self._run_dir / "keeper.log").open("a") as log_file:
            launcher = subprocess.run(  # noqa: S603 - our own interpreter
                [
                    sys.executable,
                    "-S",
                    "-m",
                    "sandbox_engine.keeper.process",
                    "--run-dir",
                    self._run_dir,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log_file,
                cwd="/",
                # Without the engine's environment, which may contain its API key, and without site
                # packages: a small keeper forks quickly.
                env={"PATH": _PATH, "PYTHONPATH": str(Path(__file__).parents[2])},
                start_new_session=True,
                check=False,
            )
        if launcher.returncode != 0:
            raise KeeperLost(f"the keeper did not start; see {log_file.name}")

    def _attach(self, connection: socket.socket) -> None:
        link = MessageSocket(connection, lambda full: self._await_room(link, full))
        self._link = link
        self._ready = self._loop.create_future()
        self._loop.add_reader(connection, self._receive)

    def _await_room(self, link: MessageSocket, full: bool) -> None:  # noqa: FBT001
        if full:
            self._loop.add_writer(link.connection, link.flush)
        else:
            self._loop.remove_writer(link.connection)

    def _receive(self) -> None:
        while self._link is not None:
            try:
                received = self._link.receive()
            except BlockingIOError:
                return
            if received is None:
                self._lose()
            else:
                self._take(*received)

    def _take(self, message: Message, descriptors: Sequence[int]) -> None:
        match message["event"]:
            case "ready" if message.get("protocol") != PROTOCOL:
                self._ready.set_exception(_OF_ANOTHER_VERSION)
            case "ready" if message["mounts"] != mount_namespace():
                self._ready.set_exception(_ELSEWHERE)
            case "ready":
                self._ready.set_result(None)
            case "held":
                held = HeldCommand(message, descriptors)
                self._held[held.key] = self._unclaimed[held.key] = held
            case "exited":
                if held_or_none := self._held.get(message["key"]):
                    held_or_none.record_end(message["status"])
            case "started":
                self._held[message["key"]] = HeldCommand(message, descriptors)
                self._answer(message)
            case _:
                self._answer(message)

    def _answer(self, message: Message) -> None:
        answer = self._answers.get(message["id"])
        if answer is not None and not answer.done():
            answer.set_result(message)
        elif message["event"] == "started":
            self.forget(self._held[message["key"]])

    def _lose(self) -> None:
        log.error("keeper lost", run_dir=self._run_dir)
        self._disconnect()
        for held in self._held.values():
            held.watch()

    def _disconnect(self) -> None:
        if self._link is None:
            return
        self._loop.remove_reader(self._link.connection)
        self._loop.remove_writer(self._link.connection)
        self._link.close()
        self._link = None
        waiting: list[asyncio.Future[Any]] = [self._ready, *self._answers.values()]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(KeeperLost("the keeper is gone"))


def _has_children(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())
    except FileNotFoundError:  # the kernel lacks CONFIG_PROC_CHILDREN
        return True


async def _end(pid: int) -> None:
    process = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGTERM)
        await asyncio.to_thread(select.select, [process], [], [])
    finally:
        os.close(process)


@contextmanager
def _memory_file(contents: bytes = b"") -> Iterator[int]:
    descriptor = os.memfd_create("sandbox-engine")
    try:
        if contents:
            os.write(descriptor, contents)
            os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _contents(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
