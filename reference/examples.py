"""Examples of the operations, and the answers recorded for them."""

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_ANSWERS = _HERE / "answers.json"

_MOST_FIELDS = 5
_LONGEST_TEXT = 60
_MOST_LINES = 7
_MORE = "…"

_FORGE = "https://github.com"


@dataclass(frozen=True, kw_only=True)
class Example:
    """A call of an operation with curl, in a shell with the variables of earlier examples."""

    operation: str
    curl: str
    status: int = 200
    before: str = ""
    """Preparation that the document does not show."""
    stand_in_for: str = ""
    """The part that a test program replaces in the sandbox; empty if nothing is replaced."""
    show: tuple[str, ...] = ()
    """Fields of the answer that the document shows; empty for the first ten."""
    keep: dict[str, str] = field(default_factory=dict)


def read_examples() -> list[Example]:
    listed = tomllib.loads((_HERE / "examples.toml").read_text())["example"]
    return [Example(**{**one, "curl": one["curl"].strip()}) for one in listed]


def read_answers() -> dict[str, str]:
    answers: dict[str, str] = json.loads(_ANSWERS.read_text()) if _ANSWERS.exists() else {}
    return answers


def record(answers: dict[str, str], *, server: str, forges: Sequence[str] = ()) -> None:
    """Store the answers, shortened and without secrets, ports of this machine and stand-ins of forges."""
    port = server.rpartition(":")[2]
    for forge in forges:
        answers = {name: answer.replace(forge, _FORGE) for name, answer in answers.items()}
    show = {example.operation: example.show for example in read_examples()}
    kept = {
        name: _shown(answer, show[name]).replace(port, "8100") for name, answer in answers.items()
    }
    _ANSWERS.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")


def shape_of(answer: str, *, show: Sequence[str] = ()) -> Any:
    """Reduce an answer to its kind and its field names."""
    shown = _shown(answer, show)
    try:
        document = json.loads(shown)
    except ValueError:
        return "text" if shown else "nothing"
    return sorted(document) if isinstance(document, dict) else type(document).__name__


def _shown(answer: str, show: Sequence[str]) -> str:
    open_text = re.sub(r"\b(sb[a-z]_)[A-Za-z0-9_-]{20,}", rf"\1{_MORE}", answer)
    try:
        document = json.loads(open_text)
    except ValueError:
        lines = open_text.splitlines()
        more = [_MORE] if len(lines) > _MOST_LINES else []
        return "\n".join(
            [*(_short(line, _LONGEST_TEXT * 2) for line in lines[:_MOST_LINES]), *more]
        )
    if isinstance(document, dict):
        document = {name: document[name] for name in show} | {_MORE: _MORE} if show else document
    shortened = _shortened(document)
    if not isinstance(shortened, dict):
        return json.dumps(shortened, ensure_ascii=False)
    fields = (f"  {_in_line(name)}: {_in_line(each)}" for name, each in shortened.items())
    return "{\n" + ",\n".join(fields) + "\n}"


def _in_line(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)


def _shortened(document: Any, depth: int = 0) -> Any:
    if isinstance(document, dict):
        if depth > 1 and document:
            return {_MORE: _MORE}
        most = _MOST_FIELDS if depth else 2 * _MOST_FIELDS
        kept = {name: _shortened(each, depth + 1) for name, each in list(document.items())[:most]}
        return kept | ({_MORE: _MORE} if len(document) > most else {})
    if isinstance(document, list):
        return [_shortened(each, depth) for each in document[:1]] + [_MORE] * (len(document) > 1)
    return _short(document, _LONGEST_TEXT) if isinstance(document, str) else document


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + _MORE
