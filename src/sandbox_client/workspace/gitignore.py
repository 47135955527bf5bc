"""Which files are synchronized: those that git does not ignore, and the configuration does not exclude."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec

from sandbox_client.workspace.endpoint.ignore import Rule, Rules

_FILE = ".gitignore"


def rules_of(root: Path, exclude: Sequence[str] = ()) -> list[Rule]:
    """Collect the rules of all `.gitignore` files, then the configured ones, which take precedence."""
    config_rules = _translate(exclude)
    found: list[Rule] = []
    for directory, below, files in os.walk(root):
        place = os.path.relpath(directory, root)
        place = "" if place == os.curdir else f"{place}/"
        if _FILE in files:
            found += _translate(_lines_of(Path(directory, _FILE)), place)
        rules = Rules([*found, *config_rules])
        below[:] = [name for name in below if not rules.ignores(place + name, is_directory=True)]
    return [*found, *config_rules]


def _lines_of(file: Path) -> list[str]:
    try:
        return file.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []


def _translate(lines: Iterable[str], place: str = "") -> list[Rule]:
    patterns = GitIgnoreSpec.from_lines(lines).patterns
    compiled = [(pattern.regex, pattern.include) for pattern in patterns]
    return [
        (f"^{re.escape(place)}{regex.pattern.removeprefix('^')}", leaves_out)
        for regex, leaves_out in compiled
        if regex is not None and leaves_out is not None
    ]
