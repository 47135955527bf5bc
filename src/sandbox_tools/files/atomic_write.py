import errno
import os
import secrets
import shutil
import stat
from pathlib import Path

from sandbox_tools.files.regular_files import require_regular_file

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_atomically(path: Path, content: bytes) -> bool:
    """Write a whole file, following symlinks; return whether it is new.

    The replacement is atomic, except for hard-linked files and files of another owner, which are written in place.
    """
    target = Path(os.path.realpath(path))
    try:
        status = target.lstat()
    except FileNotFoundError:
        make_parents(target)
        _replace(target, content, None)
        return True
    _require_writable(target, status)
    if _can_replace(target, status):
        _replace(target, content, status)
    else:
        target.write_bytes(content)
    return False


def make_parents(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise _error(NotADirectoryError, errno.ENOTDIR, path) from None


def _require_writable(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _error(OSError, errno.ELOOP, path)
    require_regular_file(path, status.st_mode)
    if not os.access(path, os.W_OK, effective_ids=True):
        raise _error(PermissionError, errno.EACCES, path)


def _error(kind: type[OSError], number: int, path: Path) -> OSError:
    return kind(number, os.strerror(number), str(path))


def _can_replace(path: Path, status: os.stat_result) -> bool:
    return (
        status.st_nlink == 1
        and status.st_uid == os.geteuid()
        and status.st_gid in {os.getegid(), *os.getgroups()}
        and os.access(path.parent, os.W_OK, effective_ids=True)
    )


def _replace(path: Path, content: bytes, old: os.stat_result | None) -> None:
    new = path.with_name(f".{secrets.token_hex(8)}.new")
    try:
        with os.fdopen(os.open(new, _NEW_FILE, 0o666), "wb") as file:
            file.write(content)
        if old:
            os.chown(new, -1, old.st_gid)
            shutil.copystat(path, new)  # mode and extended attributes
            os.utime(new)
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        error.filename = str(path)
        raise
