"""The order of the migrations, read without running them."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

DIRECTORY = Path(__file__).parents[2] / "migrations" / "versions"


def migration_faults(directory: Path = DIRECTORY) -> Iterator[str]:
    """Find numbers that two migrations have, and migrations that follow the same one: each leaves two heads."""
    names = {path.name: dict(_read_names(path)) for path in sorted(directory.glob("*.py"))}
    for what in ("revision", "down_revision"):
        count = Counter(each.get(what) for each in names.values())
        for name, each in names.items():
            if count[each.get(what)] > 1:
                yield f"{name}: another migration has the same {what}, {each.get(what)}"


def _read_names(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name):
                yield target.id, str(node.value.value)
