import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

AGENTS = ("claude", "codex", "copilot", "gemini", "opencode")
PERMISSION_MODES = ("default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto")
SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class RequestRefused(Exception):
    """The request is invalid or cannot be served; nothing was started."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt with its options; see docs/agent-server.md."""

    prompt: str
    agent: str | None = None
    model: str | None = None
    tools: tuple[str, ...] | None = None
    permission_mode: str = "bypassPermissions"
    cwd: str | None = None
    session_id: str | None = None
    max_turns: int | None = None
    timeout_s: float | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    partial: bool = False
    on_disconnect: str = "continue"

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Prompt":
        """Validate a client's request; null means absent."""
        fields = {name: value for name, value in document.items() if value is not None}
        unknown = fields.keys() - _CHECKS.keys()
        if unknown:
            raise RequestRefused("bad-request", f"Unknown fields: {', '.join(sorted(unknown))}.")
        if "prompt" not in fields:
            raise RequestRefused("bad-request", "`prompt` is required.")
        for name, value in fields.items():
            is_right, wanted = _CHECKS[name]
            if not is_right(value):
                raise RequestRefused("bad-request", f"`{name}` must be {wanted}.")
        if "tools" in fields:
            fields["tools"] = tuple(fields["tools"])
        return cls(**fields)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value and not _is_flag(value)


def _is_flag(value: str) -> bool:
    # Values become command line arguments, where this would be an option.
    return value.startswith("-")


def _is_prompt(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(_is_text(each) and "," not in each for each in value)


def _are_envs(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(each, str) and "\0" not in name + each and name and "=" not in name
        for name, each in value.items()
    )


def _one_of(*choices: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in choices, "one of " + ", ".join(choices)


def _is_session_id(value: Any) -> bool:
    return isinstance(value, str) and SESSION_ID.fullmatch(value) is not None


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "prompt": (_is_prompt, "a non-empty string"),
    "agent": _one_of(*AGENTS),
    "model": (_is_text, "the name of a model"),
    "tools": (_are_texts, "a list of tool names"),
    "permission_mode": _one_of(*PERMISSION_MODES),
    "cwd": (_is_text, "a directory"),
    "session_id": (_is_session_id, "an id of letters, digits, - and _"),
    "max_turns": (_is_count, "an integer of at least 1"),
    "timeout_s": (_is_number, "a positive number of seconds"),
    "envs": (_are_envs, "an object with strings as values"),
    "partial": (lambda value: isinstance(value, bool), "true or false"),
    "on_disconnect": _one_of("continue", "interrupt"),
}
