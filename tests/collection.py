"""Which files of tests hold none that a mark expression selects, as far as their text tells.

To import a file takes up to a second of a processor in each worker, to read it a tenth of a millisecond.
"""

import re
from functools import cache
from itertools import product
from pathlib import Path

from _pytest.mark.expression import Expression

MARKS = ("needs_engine", "process", "slow", "image", "containers")
# Their tests start servers, tool servers and browsers, each of which takes seconds of a processor.
STARTING_PROCESSES = (
    "tests/tools/",
    "tests/server/cli/",
    "tests/server/supervisor/",
    "tests/server/web/",
)
_MODULE_MARKS = re.compile(r"^pytestmark = (\[\n.*?^\]|[^\n]*)", re.MULTILINE | re.DOTALL)
# Constants of helpers that bring a mark with them.
_BRINGS = {"EVERY_POSTGRES": "slow"}


def cannot_run(file: Path, expression: str) -> bool:
    """Tell whether this file has certainly no test that the expression selects."""
    if not expression or not file.name.startswith("test_"):
        return False
    certain, possible = _marks_of(file)
    unknown = sorted(possible - certain)
    for chosen in product((False, True), repeat=len(unknown)):
        marks = certain | {mark for mark, is_there in zip(unknown, chosen, strict=True) if is_there}
        if _selects(expression, frozenset(marks)):
            return False
    return True


def starts_processes(file: Path) -> bool:
    return any(f"/{folder}" in file.as_posix() for folder in STARTING_PROCESSES)


def _marks_of(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Read which marks all tests of a file have, and which some may have."""
    text = file.read_text()
    whole = _MODULE_MARKS.search(text)
    certain = {mark for mark in MARKS if whole and f"mark.{mark}" in whole[1]}
    if starts_processes(file):
        certain.add("process")
    possible = {mark for mark in MARKS if f"mark.{mark}" in text}
    brought = {mark for name, mark in _BRINGS.items() if name in text}
    return frozenset(certain), frozenset(possible | brought)


@cache
def _selects(expression: str, marks: frozenset[str]) -> bool:
    def is_there(name: str, /, **_: object) -> bool:
        return name in marks

    return Expression.compile(expression).evaluate(is_there)
