"""The paths that ARCHITECTURE.md, CONTRIBUTING.md and the decisions name, and the size of ARCHITECTURE.md."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import REPOSITORY

SOURCES = REPOSITORY / "src"
MOST_WORDS = 3500

EXAMPLES = {"hello.py", ".cache/"}

_NAMED = re.compile(r"`([\w./{},-]+?(?:\.(?:py|js|toml)|/))`")
_BELOW = re.compile(r"below `(src/\w+)")
_CHOICE = re.compile(r"(.*)\{([^}]+)\}(.*)")

DOCUMENTS = [
    REPOSITORY / "ARCHITECTURE.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs/decisions").glob("*.md")),
]


def named_paths(document: Path) -> Iterator[tuple[str, str]]:
    """Find the paths that a document names, each with its line."""
    for line in document.read_text().splitlines():
        for path in _NAMED.findall(line):
            choice = _CHOICE.fullmatch(path)
            endings = choice[2].split(",") if choice else [""]
            for one in endings:
                yield f"{choice[1]}{one}{choice[3]}" if choice else path, line


def exists(path: str, line: str, bases: list[Path]) -> bool:
    """Look for a path below the bases and the packages of its line, and for a bare name anywhere below the bases."""
    if "/" not in path.rstrip("/"):
        is_below = any(next(base.rglob(path.rstrip("/")), None) for base in bases)
        return is_below or path in EXAMPLES or (REPOSITORY / path).exists()
    packages = [SOURCES / word for word in re.findall(r"sandbox_\w+", line)]
    return any(
        (base / path.removeprefix("…/")).exists() for base in (*bases, *packages, REPOSITORY)
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_documents__every_path_exists(document):
    below = [REPOSITORY / base for base in _BELOW.findall(document.read_text())]
    bases = [*(below or [SOURCES, SOURCES / "sandbox_server"]), SOURCES]
    missing = [path for path, line in named_paths(document) if not exists(path, line, bases)]
    assert missing == []


def test_architecture__is_short():
    assert len((REPOSITORY / "ARCHITECTURE.md").read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("package", ["sandbox_server", "sandbox_engine"])
def test_architecture__lists_every_package(package):
    section = (REPOSITORY / "ARCHITECTURE.md").read_text().partition(f"### `{package}`")[2]
    rows = "".join(row for row in section.partition("\n#")[0].splitlines() if row[:1] == "|")
    packages = {file.parent.name for file in (SOURCES / package).glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}`" not in rows} == set()
