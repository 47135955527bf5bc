"""Which paths are not synchronized."""

import re
from collections.abc import Sequence

from sandbox_client.workspace.endpoint.entries import parent_directories

STAGING = ".workspace-"  # begins the names of directories that hold what is on its way
Rule = tuple[str, bool]  # a regular expression, and whether what matches is left out


class Rules:
    """The last matching rule decides, as with git; `.git` is never synchronized."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [(re.compile(pattern), leaves_out) for pattern, leaves_out in rules]

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        name = path.rpartition("/")[2]
        if name.lower() == ".git" or name.startswith(STAGING):
            return True
        candidate = f"{path}/" if is_directory else path
        decided = (
            leaves_out for rule, leaves_out in reversed(self._rules) if rule.match(candidate)
        )
        return next(decided, False)

    def is_ignored(self, path: str, *, is_directory: bool) -> bool:
        """Whether the path or one of its parent directories is ignored."""
        return self.ignores(path, is_directory=is_directory) or any(
            self.ignores(directory, is_directory=True) for directory in parent_directories(path)
        )
