"""Examples of the operations, and what a server answered to them when they were last recorded."""

import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_ANSWERS = _HERE / "answers.json"

_MOST_FIELDS = 5
_LONGEST_TEXT = 60
_MOST_LINES = 7
_MORE = "…"


@dataclass(frozen=True, kw_only=True)
class Example:
    """A call of an operation by curl, in a shell that knows what was kept of those before."""

    operation: str
    curl: str
    status: int = 200
    before: str = ""
    """What has to be there for it, which is not shown."""
    keep: dict[str, str] = field(default_factory=dict)


def read_examples() -> list[Example]:
    listed = tomllib.loads((_HERE / "examples.toml").read_text())["example"]
    return [Example(**{**one, "curl": one["curl"].strip()}) for one in listed]


def read_answers() -> dict[str, str]:
    answers: dict[str, str] = json.loads(_ANSWERS.read_text()) if _ANSWERS.exists() else {}
    return answers


def record(answers: dict[str, str], *, server: str) -> None:
    """Keep what was answered, shortened and without what is secret or this machine's."""
    port = server.rpartition(":")[2]
    kept = {name: _shown(answer).replace(port, "8100") for name, answer in answers.items()}
    _ANSWERS.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")


def shape_of(answer: str) -> Any:
    """Tell answers apart by what is in them, whatever its values."""
    shown = _shown(answer)
    try:
        told = json.loads(shown)
    except ValueError:
        return "text" if shown else "nothing"
    return sorted(told) if isinstance(told, dict) else type(told).__name__


def _shown(answer: str) -> str:
    open_text = re.sub(r"\b(sb[a-z]_)[A-Za-z0-9_-]{20,}", rf"\1{_MORE}", answer)
    try:
        told = json.loads(open_text)
    except ValueError:
        lines = open_text.splitlines()
        more = [_MORE] if len(lines) > _MOST_LINES else []
        return "\n".join(
            [*(_short(line, _LONGEST_TEXT * 2) for line in lines[:_MOST_LINES]), *more]
        )
    shortened = _shortened(told)
    if not isinstance(shortened, dict):
        return json.dumps(shortened, ensure_ascii=False)
    fields = (f"  {_in_line(name)}: {_in_line(each)}" for name, each in shortened.items())
    return "{\n" + ",\n".join(fields) + "\n}"


def _in_line(told: Any) -> str:
    return json.dumps(told, ensure_ascii=False)


def _shortened(told: Any, depth: int = 0) -> Any:
    if isinstance(told, dict):
        if depth > 1 and told:
            return {_MORE: _MORE}
        most = _MOST_FIELDS if depth else 2 * _MOST_FIELDS
        kept = {name: _shortened(each, depth + 1) for name, each in list(told.items())[:most]}
        return kept | ({_MORE: _MORE} if len(told) > most else {})
    if isinstance(told, list):
        return [_shortened(each, depth) for each in told[:1]] + [_MORE] * (len(told) > 1)
    return _short(told, _LONGEST_TEXT) if isinstance(told, str) else told


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + _MORE
