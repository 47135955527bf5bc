"""One-line summaries of agents' messages, for progress reports."""

from collections.abc import Iterator, Mapping
from typing import Any

_MAX_LINE_LENGTH = 200
_SUMMARY_FIELDS = (
    "description",
    "command",
    "file_path",
    "path",
    "pattern",
    "url",
    "query",
    "prompt",
)


def summarize(message: Mapping[str, Any]) -> str | None:
    """Summarize a message of any agent in one line; None if it contains nothing to report."""
    lines = list(_lines(message))
    return lines[-1][:_MAX_LINE_LENGTH] if lines else None


def _lines(message: Mapping[str, Any]) -> Iterator[str]:
    for kind, content in _content(message):
        line = content if isinstance(content, str) else _use(kind, content)
        yield from line.strip().splitlines()[:1]


def _content(message: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield texts and tool calls as (tool name, text or arguments)."""
    kind = message.get("type")
    if kind == "assistant":  # Claude
        for block in _objects(message.get("content")):
            if block.get("type") == "tool_use":
                yield str(block.get("name")), block.get("input")
            else:
                yield "", block.get("text") or ""
    elif kind in ("item.started", "item.completed"):  # Codex
        item = _object(message.get("item"))
        text = item.get("text") or item.get("message")
        yield str(item.get("type")), text or item
    elif kind == "tool_use":  # Gemini, opencode
        part = _object(message.get("part"))
        yield (
            str(message.get("tool_name") or part.get("tool")),
            (message.get("parameters") or _object(part.get("state")).get("input")),
        )
    elif kind == "text":  # opencode
        yield "", str(_object(message.get("part")).get("text") or "")
    elif kind == "tool.execution_start":  # Copilot
        data = _object(message.get("data"))
        yield str(data.get("toolName")), data.get("arguments")
    elif kind == "assistant.message":  # Copilot
        yield "", str(_object(message.get("data")).get("content") or "")


def _use(tool: str, arguments: Any) -> str:
    fields = _object(arguments)
    about = next((str(fields[name]) for name in _SUMMARY_FIELDS if fields.get(name)), "")
    return f"{tool}: {about}" if about else tool


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
