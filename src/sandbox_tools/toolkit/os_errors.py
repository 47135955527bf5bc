import os
import pwd
import stat
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

_MAX_NEIGHBOURS = 1_000
_MAX_LISTED = 5


def describe_os_error(error: OSError) -> str:
    """Say what is wrong with a file, and what to do, for who sees neither errno nor the machine."""
    if not isinstance(error.filename, str | os.PathLike):
        return f"{error.strerror}."
    path = Path(error.filename)
    match error:
        case FileNotFoundError():
            return _about_absent(path)
        case IsADirectoryError():
            return f"{path} is a directory. Use list_directory to see what is in it."
        case NotADirectoryError():
            return _about_no_directory(path)
        case PermissionError():
            return _about_forbidden(path)
    return f"{path}: {error.strerror}."


def _about_absent(path: Path) -> str:
    there = next((parent for parent in path.parents if os.path.lexists(parent)), path.parent)
    if path.is_symlink():
        return f"{path} is a symlink to {path.readlink()}, which is not there."
    if there != path.parent:
        return f"There is no {path}: of this path only {there} exists."
    near = get_close_matches(path.name, _names(there), n=_MAX_LISTED, cutoff=0.6)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"There is no {path.name} in {there}.{hint}"


def _about_no_directory(path: Path) -> str:
    if os.path.lexists(path):
        return f"{path} is a file, not a directory. Use read_file to see what is in it."
    return f"There is no {path}: a part of this path is a file, not a directory."


def _names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in islice(entries, _MAX_NEIGHBOURS)]
    except OSError:
        return []


def _about_forbidden(path: Path) -> str:
    try:
        status = path.lstat()
    except OSError:
        return f"The tools run as {_name(os.geteuid())}, who may not get to {path}."
    return (
        f"The tools run as {_name(os.geteuid())}, who may not do this to {path}: it belongs to"
        f" {_name(status.st_uid)}, with the mode {stat.filemode(status.st_mode)}."
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
