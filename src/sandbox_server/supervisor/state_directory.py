import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from sandbox_server.supervisor.errors import CannotServe

_PATIENCE = timedelta(seconds=5)  # the last process of a killed server may be about to end
_GLANCE_S = 0.05


@contextmanager
def sole_server(directory: Path, *, patience: timedelta = _PATIENCE) -> Iterator[None]:
    """Create the directory and lock it for this server."""
    lock = _open_lock(directory)
    try:
        if not _take(lock, patience=patience):
            raise CannotServe(
                f"Another server (pid {_read_pid(lock)}) is using {directory}. Stop it, or choose "
                "another --state-dir."
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)


def find_server(directory: Path) -> int | None:
    """Return the pid of the server that uses the directory, if any."""
    try:
        lock = os.open(directory / "server.lock", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    try:
        return None if _take(lock, patience=timedelta()) else _read_pid(lock)
    finally:
        os.close(lock)


def _open_lock(directory: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        directory.mkdir(
            parents=True, exist_ok=True, mode=0o755
        )  # private files in it have their own mode
        _require_ours(directory)
        return os.open(directory / "server.lock", flags, 0o600)
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise CannotServe(
            f"Cannot use the state directory {directory}: {reason}. Set --state-dir or "
            "SANDBOX_SERVER_STATE_DIR to a directory that the server may write to."
        ) from None


def _require_ours(directory: Path) -> None:
    """Reject a directory in which another account could replace our files."""
    found = directory.stat()
    if found.st_uid not in {os.geteuid(), 0} or found.st_mode & 0o002:
        raise CannotServe(
            f"Other accounts can write to {directory}. Change its owner and mode (chown, "
            "chmod o-w), or choose another --state-dir."
        )


def _read_pid(lock: int) -> int:
    return int(os.pread(lock, 32, 0) or 0)  # its holder has not written it yet


def _take(lock: int, *, patience: timedelta) -> bool:
    end = time.monotonic() + patience.total_seconds()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(_GLANCE_S)
        else:
            return True


def write_private(path: Path, content: str) -> None:
    """Write a private file atomically."""
    fresh = path.with_name(f"{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(fresh, flags, 0o600), "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
