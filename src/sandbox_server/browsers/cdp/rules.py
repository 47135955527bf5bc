"""Rules for commands of CDP clients: forward, answer, or disconnect. Pure functions over messages."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_REFUSED = {
    "Browser.crash": "Browser.crash is refused: it would end the browser for all of its clients.",
    "Browser.crashGpuProcess": "Browser.crashGpuProcess is refused: it affects all clients of the browser.",
}
_CLOSE = "Browser.close"
_DOWNLOADS = frozenset({"Browser.setDownloadBehavior", "Page.setDownloadBehavior"})
_NESTING = "Target.sendMessageToTarget"
_ANSWERED = frozenset({_CLOSE, *_REFUSED})
_STORING = frozenset({"allow", "allowAndName"})
_TWICE = "The command contains a name twice."
_PARSE_ERROR, _SERVER_ERROR = -32700, -32000

# What the page of the live view sends; none of these changes what the browser shows to others.
_WATCHING = frozenset(
    {
        "Target.setDiscoverTargets",
        "Target.getTargets",
        "Target.attachToTarget",
        "Target.detachFromTarget",
        "Page.enable",
        "Page.startScreencast",
        "Page.stopScreencast",
        "Page.screencastFrameAck",
        "Page.captureScreenshot",
        "Page.getLayoutMetrics",
    }
)

# An escape of a printable ASCII character, which no encoder needs; the backslash is not escaped itself.
_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\(?:u00[2-7]|x)", re.IGNORECASE)


@dataclass(frozen=True)
class Forward:
    """Forward the command; `message` replaces it if it was changed."""

    message: bytes | None = None


@dataclass(frozen=True)
class Answer:
    """Answer the command in place of the browser."""

    message: bytes


@dataclass(frozen=True)
class CloseRequest:
    """Answer the command, and disconnect the client: it asked to close the browser."""

    message: bytes


Decision = Forward | Answer | CloseRequest
_UNCHANGED = Forward()


class _Invalid(Exception):
    """The message is no JSON as RFC 8259 has it."""


class _Command(dict[str, Any]):
    """A JSON object that knows the values of repeated names."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.methods = [value for name, value in pairs if name == "method"]
        self.is_ambiguous = len(pairs) != len(self)


def may_concern_rules(message: bytes) -> bool:
    """Whether a rule may apply to the command. Most commands are forwarded without being parsed."""
    return (
        b"Browser.c" in message
        or b"DownloadBehavior" in message
        or b"sendMessageToTarget" in message
        or ((b"\\u00" in message or b"\\x" in message) and _ESCAPE.search(message) is not None)
    )


def decide(message: bytes, *, downloads: str) -> Decision:
    """Decide what happens to a client's command."""
    if not may_concern_rules(message):
        return _UNCHANGED
    try:
        command = _parse(message)
    except _Invalid:
        # Chromium's parser accepts more than ours, such as comments: an unreadable command could be any.
        error = {"code": _PARSE_ERROR, "message": "The command is not valid JSON."}
        return Answer(_dump({"error": error}))
    if command is None:
        return _UNCHANGED
    if command.is_ambiguous and _ruled(command.methods):
        return _refuse(command, _TWICE)
    return _apply(command, downloads)


def decide_watcher(message: bytes) -> Decision:
    """Decide about a message of a viewer that may only watch: it is parsed, and written anew if it is a known command."""
    try:
        command = _parse(message)
    except _Invalid:
        command = None
    if command is None:
        return Answer(
            _dump({"error": {"code": _PARSE_ERROR, "message": "The command is not valid JSON."}})
        )
    method = command.get("method")
    if not isinstance(method, str) or method not in _WATCHING:
        return _refuse(command, "This link is for watching only.")
    return Forward(_dump(command))


def _apply(command: _Command, downloads: str) -> Decision:
    method = command.get("method")
    if not isinstance(method, str):
        return _UNCHANGED
    if method == _CLOSE:
        return CloseRequest(_reply(command, result={}))
    if method == _NESTING:
        return _check_nested(command)
    if method in _REFUSED:
        return _refuse(command, _REFUSED[method])
    if method in _DOWNLOADS:
        return _redirect_downloads(command, downloads)
    return _UNCHANGED


def _check_nested(command: _Command) -> Decision:
    """Refuse rules' commands inside others: only clients older than flat sessions nest, and send none of these."""
    params = command.get("params")
    if not isinstance(params, _Command):
        return _UNCHANGED
    if params.is_ambiguous:
        return _refuse(command, _TWICE)
    nested = params.get("message")
    if not isinstance(nested, str) or not may_concern_rules(nested.encode(errors="replace")):
        return _UNCHANGED
    try:
        inner = _parse(nested)
    except _Invalid:
        return _refuse(command, "The nested command is not valid JSON.")
    if inner is not None and _ruled(inner.methods):
        reason = f"{inner.methods[-1]} is refused inside {_NESTING}: attach with `flatten`."
        return _refuse(command, reason)
    return _UNCHANGED


def _ruled(methods: Iterable[Any]) -> bool:
    return any(
        isinstance(each, str) and (each in _ANSWERED or each in _DOWNLOADS or each == _NESTING)
        for each in methods
    )


def _redirect_downloads(command: Mapping[str, Any], directory: str) -> Decision:
    """Replace the client's directory, which names a path of the client's machine."""
    params = command.get("params")
    if not isinstance(params, _Command):
        return _UNCHANGED
    if params.is_ambiguous:
        return _refuse(command, _TWICE)
    if str(params.get("behavior")) not in _STORING:
        return _UNCHANGED
    return Forward(_dump({**command, "params": {**params, "downloadPath": directory}}))


def _parse(message: bytes | str) -> _Command | None:
    try:
        text = message if isinstance(message, str) else message.decode()
        command = json.loads(text, object_pairs_hook=_Command)
    except (ValueError, RecursionError):
        raise _Invalid from None
    return command if isinstance(command, _Command) else None


def _refuse(command: Mapping[str, Any], reason: str) -> Answer:
    return Answer(_reply(command, error={"code": _SERVER_ERROR, "message": reason}))


def _reply(command: Mapping[str, Any], **content: Any) -> bytes:
    """Build the reply; commands of attached targets carry their `sessionId`."""
    session = {"sessionId": command["sessionId"]} if "sessionId" in command else {}
    return _dump({"id": command.get("id"), **content, **session})


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
