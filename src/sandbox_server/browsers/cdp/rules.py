"""Rules for commands of CDP clients: forward, answer, or disconnect. Pure functions over messages."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Most messages contain none of these and are forwarded without being parsed.
_MARKS = (b"Browser.c", b"Browser.setDownloadBehavior", b"Page.setDownloadBehavior")

_REFUSED = {
    "Browser.crash": "Browser.crash is refused: it would end the browser for all of its clients.",
    "Browser.crashGpuProcess": "Browser.crashGpuProcess is refused: it affects all clients of the browser.",
}
_DOWNLOADS = frozenset({"Browser.setDownloadBehavior", "Page.setDownloadBehavior"})
_STORING = frozenset({"allow", "allowAndName"})
_SERVER_ERROR = -32000


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


def decide(message: bytes, *, downloads: str) -> Decision:
    """Decide what happens to a client's command."""
    if not any(mark in message for mark in _MARKS):
        return _UNCHANGED
    command = _parse(message)
    method = command.get("method")
    if method == "Browser.close":
        return CloseRequest(_reply(command, result={}))
    if method in _REFUSED:
        error = {"code": _SERVER_ERROR, "message": _REFUSED[method]}
        return Answer(_reply(command, error=error))
    if method in _DOWNLOADS:
        return _redirect_downloads(command, downloads)
    return _UNCHANGED


def _redirect_downloads(command: Mapping[str, Any], directory: str) -> Decision:
    """Replace the client's directory, which names a path of the client's machine."""
    params = command.get("params")
    if not isinstance(params, dict) or params.get("behavior") not in _STORING:
        return _UNCHANGED
    return Forward(_dump({**command, "params": {**params, "downloadPath": directory}}))


def _parse(message: bytes) -> Mapping[str, Any]:
    try:
        command = json.loads(message)
    except (ValueError, RecursionError):  # the browser answers with its own error
        return {}
    return command if isinstance(command, dict) else {}


def _reply(command: Mapping[str, Any], **content: Any) -> bytes:
    """Build the reply; commands of attached targets carry their `sessionId`."""
    session = {"sessionId": command["sessionId"]} if "sessionId" in command else {}
    return _dump({"id": command.get("id"), **content, **session})


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
