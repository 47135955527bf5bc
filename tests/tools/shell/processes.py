from contextlib import suppress
from pathlib import Path


def alive(path):
    """Whether the process whose pid is in a file still runs."""
    stat = Path(f"/proc/{path.read_text().strip()}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    return False
