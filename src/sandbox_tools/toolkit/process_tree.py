import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_POLLS_BEFORE_KILL = 40
_MAX_POLLS = 80
_POLL_INTERVAL_S = 0.05
_SUDO_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Process:
    pid: int
    started: int  # ticks since boot; pid and start time identify a process
    parent: int
    session: int


def find_process_tree(leader: int) -> set[Process]:
    """Find the processes of a command: its session and all descendants, in any session."""
    living = list(_running_processes())
    return _with_descendants([p for p in living if leader in (p.pid, p.session)], living)


def find_processes_with(variable: str, value: str) -> set[Process]:
    """Find the processes that inherited an environment variable, and their descendants, which may have dropped it."""
    living, marked = list(_running_processes()), f"{variable}={value}".encode()
    return _with_descendants([p for p in living if marked in _environment(p.pid)], living)


async def terminate_process_tree(leader: int, also: Iterable[Process] = ()) -> bool:
    """Send SIGTERM to all processes of a command, and SIGKILL after 2 s; return whether all have ended."""
    return await _terminate(lambda: find_process_tree(leader), also)


async def terminate_processes_with(variable: str, value: str) -> bool:
    """Do the same to all processes that inherited an environment variable, also detached ones."""
    return await _terminate(lambda: find_processes_with(variable, value))


async def kill_processes_with(variable: str, value: str) -> None:
    """Kill all processes that inherited an environment variable, also if they keep forking."""
    for _ in range(_MAX_POLLS):
        living = find_processes_with(variable, value)
        if not living:
            return
        await _signal(living, signal.SIGKILL)
        await asyncio.sleep(_POLL_INTERVAL_S / 10)


async def _terminate(find: Callable[[], set[Process]], also: Iterable[Process] = ()) -> bool:
    signalled = find() | set(also)
    await _signal(_remaining(find, signalled), signal.SIGTERM)
    for attempt in range(_MAX_POLLS):
        left = _remaining(find, signalled)
        if not left:
            return True
        if attempt >= _POLLS_BEFORE_KILL:  # repeatedly: some may have forked meanwhile
            await _signal(left, signal.SIGKILL)
        await asyncio.sleep(_POLL_INTERVAL_S)
    return False


def _remaining(find: Callable[[], set[Process]], signalled: set[Process]) -> set[Process]:
    known = {(process.pid, process.started) for process in signalled}
    return find() | {p for p in _running_processes() if (p.pid, p.started) in known}


def _with_descendants(roots: Iterable[Process], living: Iterable[Process]) -> set[Process]:
    children: dict[int, list[Process]] = {}
    for process in living:
        children.setdefault(process.parent, []).append(process)
    found: set[Process] = set()
    new = list(roots)
    while new:
        process = new.pop()
        if process not in found:
            found.add(process)
            new.extend(children.get(process.pid, ()))
    return found


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


async def _signal(processes: Iterable[Process], number: signal.Signals) -> None:
    not_permitted = []
    for process in processes:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            not_permitted.append(process.pid)
    if not_permitted:
        await _signal_with_sudo(not_permitted, number)


async def _signal_with_sudo(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes that became another user's through sudo, if sudo needs no password."""
    arguments = ("-n", "kill", f"-{number}", *map(str, pids))
    with suppress(FileNotFoundError, TimeoutError):
        process = await asyncio.create_subprocess_exec(
            "sudo", *arguments, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
        )
        await asyncio.wait_for(process.wait(), _SUDO_TIMEOUT_S)


def is_alive(pid: int) -> bool:
    """Check that the process exists and is not a zombie."""
    return _find(Path(f"/proc/{pid}")) is not None


def _running_processes() -> Iterable[Process]:
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            process = _find(directory)
            if process is not None:
                yield process


def _find(directory: Path) -> Process | None:
    try:
        return _parse((directory / "stat").read_bytes())
    except OSError:
        return None


def _parse(stat: bytes) -> Process | None:
    # The program's name, in parentheses, may contain any character.
    pid, _, rest = stat.partition(b" ")
    fields = rest.rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return Process(
        pid=int(pid), parent=int(fields[1]), session=int(fields[3]), started=int(fields[19])
    )
