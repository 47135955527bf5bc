"""Summarizes the events that agents write, one JSON object per line; docs/in-the-sandbox.md has their types."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

_LONGEST = 400
_LONGEST_HELD = 1024 * 1024
_ABOUT = ("description", "command", "file_path", "path", "pattern", "url", "query", "prompt")


class AgentLines:
    """Collects the lines of a run from pieces of its output."""

    def __init__(self) -> None:
        self._begun = ""

    def feed(self, text: str) -> Iterator[str]:
        *lines, self._begun = (self._begun + text).split("\n")
        self._begun = self._begun[-_LONGEST_HELD:]
        for line in lines:
            yield from summarize(line)


def summarize(line: str) -> Iterator[str]:
    """Yield what an event says to a reader; a line that is not an event is shown as it is."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        yield from _lines(line)
        return
    match event.get("type"):
        case "message":
            for text in _texts(_object(event.get("message"))):
                yield from _lines(text)
        case "result":
            yield from _lines(f"[{event.get('state')}] {event.get('output') or ''}")


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, of which the last is cut."""
    shown = text.strip()
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}…"
    yield from (line for line in shown.splitlines() if line.strip())


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts and tool calls of a message of Claude, Codex, Gemini, opencode or Copilot."""
    data, item, part = (_object(message.get(name)) for name in ("data", "item", "part"))
    match message.get("type"):
        case "assistant":
            content = message.get("content") or _object(message.get("message")).get("content")
            yield from map(_block, content if isinstance(content, list) else [])
        case "item.completed":
            yield str(item.get("text") or _call(str(item.get("type")), item))
        case "tool_use":
            name = str(message.get("tool_name") or part.get("tool"))
            state = _object(part.get("state"))
            yield _call(name, _object(message.get("parameters") or state.get("input")))
        case "text":
            yield str(part.get("text") or "")
        case "tool.execution_start":
            yield _call(str(data.get("toolName")), _object(data.get("arguments")))
        case "assistant.message":
            yield str(data.get("content") or "")


def _block(block: object) -> str:
    fields = _object(block)
    if fields.get("type") == "tool_use":
        return _call(str(fields.get("name")), _object(fields.get("input")))
    return str(fields.get("text") or "")


def _call(tool: str, arguments: Mapping[str, Any]) -> str:
    about = next((str(arguments[name]) for name in _ABOUT if arguments.get(name)), "")
    return f"→ {tool}: {about}" if about else f"→ {tool}"


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
