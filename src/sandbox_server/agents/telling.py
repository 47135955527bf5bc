"""What an agent said as its followers are told it: nothing that a sandbox writes is trusted to be what it should."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sandbox_server.agents.lines import Line, Missing
from sandbox_server.domain.agents import read_line
from sandbox_server.log.source import Item

_STARTED = "started"
_TOLD = (_STARTED, "message")
_RESULT = "result"
_LONGEST_TEXT = 4096


def item_of(said: Line | Missing, *, run_id: str) -> Item | None:
    """Tell a line, unless it is the result, which is told when the run has ended."""
    if isinstance(said, Missing):
        return make_item(said.number, {"type": "gap", "size": said.size}, said.at)
    document = read_line(said.content)
    kind = document.get("type")
    if kind == _RESULT:
        return None
    if kind in _TOLD:
        if kind == _STARTED:
            document = {**document, "run_id": run_id}
        try:
            return make_item(said.number, document, said.at)
        except (ValueError, RecursionError):
            pass
    return _as_text(said)


def make_item(number: int, told: Mapping[str, Any], at: datetime) -> Item:
    document = {**told, "at": at.isoformat().replace("+00:00", "Z")}
    # A number that is none, and a half of a character, are no JSON.
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Item(number, text.encode(errors="replace"))


def _as_text(said: Line) -> Item | None:
    text = said.content.decode(errors="replace").strip()
    if not text:
        return None
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}… [{len(text) - _LONGEST_TEXT} more characters]"
    return make_item(said.number, {"type": "text", "text": text}, said.at)
