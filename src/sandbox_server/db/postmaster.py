import os
from pathlib import Path


def is_running(data: Path) -> bool:
    """Say whether the server that this data names is there."""
    pid = _pid_in(data / "postmaster.pid")
    return pid is not None and _works_on(data, pid)


def forget_strangers(data: Path, *notes: Path) -> None:
    """Remove those notes of a server whose number another process, or a dead one, has by now.

    That happens when the machine or the container was started anew, or its first process buries
    nobody, and PostgreSQL would refuse to start. Of a number that nobody has PostgreSQL makes more
    than we could: it looks for the server's children.
    """
    for note in notes:
        pid = _pid_in(note)
        if pid is not None and _exists(pid) and not _works_on(data, pid):
            note.unlink()


def has_survivors(data: Path) -> bool:
    """Say whether children of a server that was killed are still there; they end by themselves.

    As long as they are, PostgreSQL refuses to start on the same data.
    """
    return any(_works_on(data, int(found.name)) for found in Path("/proc").glob("[0-9]*"))


def _pid_in(note: Path) -> int | None:
    try:
        return int(note.read_text().split()[0])
    except (FileNotFoundError, IndexError, ValueError):
        return None


def _works_on(data: Path, pid: int) -> bool:
    if not Path("/proc/self").exists():  # macOS
        return _exists(pid)
    try:
        program = Path(f"/proc/{pid}/comm").read_text().strip()
        return program == "postgres" and Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
