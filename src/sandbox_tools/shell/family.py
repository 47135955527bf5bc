import asyncio
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LOOKS_BEFORE_KILL = 40
_LOOKS_IN_ALL = 80
_BETWEEN_LOOKS_S = 0.05


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


async def end_family(leader: int, also: Iterable[Process] = ()) -> None:
    """Ask all processes of a command to end, and after 2 s kill those that have not."""
    asked = family(leader) | set(also)
    _signal(_remaining(leader, asked), signal.SIGTERM)
    for look in range(_LOOKS_IN_ALL):
        await asyncio.sleep(_BETWEEN_LOOKS_S)
        left = _remaining(leader, asked)
        if not left:
            return
        if look >= _LOOKS_BEFORE_KILL:  # again and again: some may have started others meanwhile
            _signal(left, signal.SIGKILL)


def _remaining(leader: int, asked: set[Process]) -> set[Process]:
    known = {(process.pid, process.started) for process in asked}
    return family(leader) | {p for p in _living() if (p.pid, p.started) in known}


def _signal(processes: Iterable[Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def _living() -> Iterable[Process]:
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with suppress(OSError):
                process = _parse((directory / "stat").read_bytes())
                if process is not None:
                    yield process


def _parse(stat: bytes) -> Process | None:
    # The name of the program, in parentheses, may have anything in it.
    pid, _, rest = stat.partition(b" ")
    fields = rest.rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return Process(
        pid=int(pid), parent=int(fields[1]), session=int(fields[3]), started=int(fields[19])
    )
