"""Reads what skopeo says when it fails: lines of `key=value`, with values quoted as Go does."""

import ast
import re

_MESSAGE = re.compile(r'\blevel=(?:fatal|error)\b.*?\bmsg=("(?:[^"\\]|\\.)*"|\S+)')
_OPENING = re.compile(r'Error parsing image name "[^"]*": ')
_URL_PARAMETERS = re.compile(r"(https?://[^\s\"?]+)\?[^\s\"]*")
_MOST_CHARACTERS = 1000

# What a registry answers that does not have the image, or not for this caller.
_REFUSAL = re.compile(
    r"(?:manifest|name) unknown|repository name not known|not found|unauthorized|denied"
    r"|authentication required|invalid username/password|\b40[134] \(?[A-Z]",
    re.IGNORECASE,
)


def explain(log: bytes) -> str:
    """Find the reason in what skopeo wrote."""
    text = log.decode(errors="replace")
    messages = _MESSAGE.findall(text)
    reason = _unquoted(messages[-1]) if messages else text.strip()
    reason = _OPENING.sub("", reason)
    # Signed addresses of blobs are as good as a password.
    reason = _URL_PARAMETERS.sub(r"\1", reason)
    return "".join(c if c.isprintable() else " " for c in reason)[:_MOST_CHARACTERS]


def is_refusal(reason: str) -> bool:
    """Tell a registry that says no from one that does not answer."""
    return _REFUSAL.search(reason) is not None


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(ast.literal_eval(value))  # a string's literal: Go's escapes are Python's
    except (SyntaxError, ValueError):
        return value
