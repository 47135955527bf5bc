"""The code in our documents, as somebody would run it who reads them from top to bottom."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BY_HTTP = REPOSITORY / "docs/by-http.md"
RUN = ("sh", "python")

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    reason: str | None
    """Why it is not run."""


def documents() -> list[Path]:
    """List what people read that has code in it which is to be run."""
    found = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    return [file for file in found if any(to_run(blocks_of(file)))]


def blocks_of(document: Path) -> list[Block]:
    return [
        Block(found["language"], found["code"], found["reason"])
        for found in _BLOCK.finditer(document.read_text())
    ]


def to_run(blocks: list[Block]) -> Iterator[Block]:
    return (block for block in blocks if block.language in RUN and block.reason is None)


def script_of(document: Path, replaced: Mapping[str, str]) -> str:
    """Make one script of a document, with the places of a test's own."""
    parts = [_PRELUDE, *map(_as_shell, to_run(blocks_of(document)))]
    script = "\n".join(parts)
    for usual, own in replaced.items():
        script = script.replace(usual, own)
    return script


def _as_shell(block: Block) -> str:
    if block.language == "sh":
        return block.code
    return f"python - <<'END OF BLOCK'\n{block.code}END OF BLOCK\n"


# An answer that is an error ends it, a stream that does not end by itself is heard for a moment, and a server in a
# sandbox that was just started has a few seconds.
_PRELUDE = """
set -euo pipefail
curl() {
    local streams= ended=0
    case " $* " in *" -N "*) streams="--max-time 2 --retry 0" ;; esac
    command curl --silent --show-error --fail-with-body --retry 5 --retry-delay 1 $streams "$@" || ended=$?
    [ "$ended" = 0 ] || { [ -n "$streams" ] && [ "$ended" = 28 ]; }
}
ID=$(curl -H "X-API-Key: $KEY" -H 'Content-Type: application/json' -d '{}' $SERVER/v1/sandboxes | jq -r .id)
"""
