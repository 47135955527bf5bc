import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LOOKS_BEFORE_KILL = 40
_LOOKS_IN_ALL = 80
_BETWEEN_LOOKS_S = 0.05
_SUDO_WITHIN_S = 5.0


@dataclass(frozen=True)
class Process:
    pid: int
    started: int  # in ticks since boot: with the pid it names a process for good
    parent: int
    session: int


def family(leader: int) -> set[Process]:
    """Find who belongs to a command: its session, and all their descendants in whatever session."""
    living = list(_living())
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


async def end_family(leader: int, also: Iterable[Process] = ()) -> bool:
    """Ask all processes of a command to end, and after 2 s kill those that have not; whether all are gone."""
    asked = family(leader) | set(also)
    await _signal(_remaining(leader, asked), signal.SIGTERM)
    for look in range(_LOOKS_IN_ALL):
        await asyncio.sleep(_BETWEEN_LOOKS_S)
        left = _remaining(leader, asked)
        if not left:
            return True
        if look >= _LOOKS_BEFORE_KILL:  # again and again: some may have started others meanwhile
            await _signal(left, signal.SIGKILL)
    return False


def _remaining(leader: int, asked: set[Process]) -> set[Process]:
    known = {(process.pid, process.started) for process in asked}
    return family(leader) | {p for p in _living() if (p.pid, p.started) in known}


async def _signal(processes: Iterable[Process], number: signal.Signals) -> None:
    of_others = []
    for process in processes:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            of_others.append(process.pid)
    if of_others:
        await _signal_by_sudo(of_others, number)


async def _signal_by_sudo(pids: Iterable[int], number: signal.Signals) -> None:
    """Have root do it, as what became another user's did by sudo, where it asks for no password."""
    arguments = ("-n", "kill", f"-{number}", *map(str, pids))
    with suppress(FileNotFoundError, TimeoutError):
        asked = await asyncio.create_subprocess_exec(
            "sudo", *arguments, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
        )
        await asyncio.wait_for(asked.wait(), _SUDO_WITHIN_S)


def lives(pid: int) -> bool:
    """Tell whether there is such a process, and it has not ended."""
    return _find(Path(f"/proc/{pid}")) is not None


def _living() -> Iterable[Process]:
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
    # The name of the program, in parentheses, may have anything in it.
    pid, _, rest = stat.partition(b" ")
    fields = rest.rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return Process(
        pid=int(pid), parent=int(fields[1]), session=int(fields[3]), started=int(fields[19])
    )
