"""Bash scripts that the server runs in sandboxes, one file each, as the sandbox's user.

A checkout belongs to the agent: its hooks, and programs that watch its files, are switched off here. Other programs that its
configuration names, such as filters, run as the agent itself does.

Each script is a subshell: `exit` in a login shell runs ~/.bash_logout, whose exit code would be the script's.
"""

from importlib.resources import files
from typing import Final


def _script(*parts: str) -> str:
    texts = (files(__name__).joinpath(f"{part}.sh").read_text() for part in parts)
    return f"(\n{''.join(texts)})"


BEGIN: Final = _script("git", "begin")
FINISH: Final = _script("git", "settle", "finish")
UPDATE: Final = _script("git", "settle", "update")
SEAL: Final = _script("git", "seal")
TAKE: Final = _script("git", "take")
RESTORE: Final = _script("git", "restore")
HEAD: Final = _script("git", "head")
