import os
from pathlib import Path


def is_running(data: Path) -> bool:
    """Check whether the server in the pid file is running."""
    pid = _pid_in(data / "postmaster.pid")
    return pid is not None and _works_on(data, pid)


def remove_stale_pid_files(data: Path, *pid_files: Path) -> None:
    """Remove the pid file if its pid belongs to another process or a zombie.

    This happens after a restart of the machine or container, or without an init process, and PostgreSQL
    would refuse to start. If the pid is unused the file is kept: PostgreSQL then checks for remaining
    children of that server.
    """
    for pid_file in pid_files:
        pid = _pid_in(pid_file)
        if pid is not None and _exists(pid) and not _works_on(data, pid):
            pid_file.unlink()


def has_survivors(data: Path) -> bool:
    """Check for remaining children of a killed server; they end by themselves.

    PostgreSQL refuses to start on the same data until then.
    """
    return any(_works_on(data, int(found.name)) for found in Path("/proc").glob("[0-9]*"))


def _pid_in(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text().split()[0])
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
