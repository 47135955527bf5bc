import os
import pwd
import stat
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

_MAX_NEIGHBOURS = 1_000
_MAX_LISTED = 5


def describe_os_error(error: OSError) -> str:
    """Say what is wrong with the file and what to do next."""
    if not isinstance(error.filename, str | os.PathLike):
        return f"{error.strerror}."
    path = Path(error.filename)
    match error:
        case FileNotFoundError():
            return _about_absent(path)
        case IsADirectoryError():
            return f"{path} is a directory. List it with list_directory."
        case NotADirectoryError():
            return _about_no_directory(path)
        case PermissionError():
            return _about_forbidden(path)
    return f"{path}: {error.strerror}."


def _about_absent(path: Path) -> str:
    there = next((parent for parent in path.parents if os.path.lexists(parent)), path.parent)
    if path.is_symlink():
        return f"{path} is a symlink to {path.readlink()}, which does not exist."
    if there != path.parent:
        return f"{path} does not exist. The deepest existing directory is {there}."
    near = get_close_matches(path.name, _names(there), n=_MAX_LISTED, cutoff=0.6)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"{path.name} does not exist in {there}.{hint}"


def _about_no_directory(path: Path) -> str:
    if os.path.lexists(path):
        return f"{path} is a file, not a directory. Read it with read_file."
    return f"{path} does not exist: a parent in this path is a file."


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
        return f"Permission denied: {path} is not accessible for {_name(os.geteuid())}, the user of the tools."
    return (
        f"Permission denied: {path} (owner {_name(status.st_uid)}, mode {stat.filemode(status.st_mode)})."
        f" The tools run as {_name(os.geteuid())}; use sudo in run_command if it is available."
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
