import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Iterable
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
    children: dict[int, list[Process]] = {}
    for process in living:
        children.setdefault(process.parent, []).append(process)
    found: set[Process] = set()
    new = [process for process in living if leader in (process.pid, process.session)]
    while new:
        process = new.pop()
        if process not in found:
            found.add(process)
            new.extend(children.get(process.pid, ()))
    return found


async def terminate_process_tree(leader: int, also: Iterable[Process] = ()) -> bool:
    """Send SIGTERM to all processes of a command, and SIGKILL after 2 s; return whether all have ended."""
    signalled = find_process_tree(leader) | set(also)
    await _signal(_remaining(leader, signalled), signal.SIGTERM)
    for attempt in range(_MAX_POLLS):
        await asyncio.sleep(_POLL_INTERVAL_S)
        left = _remaining(leader, signalled)
        if not left:
            return True
        if attempt >= _POLLS_BEFORE_KILL:  # repeatedly: some may have forked meanwhile
            await _signal(left, signal.SIGKILL)
    return False


def _remaining(leader: int, signalled: set[Process]) -> set[Process]:
    known = {(process.pid, process.started) for process in signalled}
    return find_process_tree(leader) | {
        p for p in _running_processes() if (p.pid, p.started) in known
    }


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
