"""Parses skopeo's error output: lines of `key=value` with Go-quoted values."""

import ast
import re

_MESSAGE = re.compile(r'\blevel=(?:fatal|error)\b.*?\bmsg=("(?:[^"\\]|\\.)*"|\S+)')
_OPENING = re.compile(r'Error parsing image name "[^"]*": ')
_URL_PARAMETERS = re.compile(r"(https?://[^\s\"?]+)\?[^\s\"]*")
_MOST_CHARACTERS = 1000

# Answers of a registry that lacks the image or denies access.
_REFUSAL = re.compile(
    r"(?:manifest|name) unknown|repository name not known|not found|unauthorized|denied"
    r"|authentication required|invalid username/password|\b40[134] \(?[A-Z]",
    re.IGNORECASE,
)


def explain(log: bytes) -> str:
    """Extract the reason from skopeo's output."""
    text = log.decode(errors="replace")
    messages = _MESSAGE.findall(text)
    reason = _unquoted(messages[-1]) if messages else text.strip()
    reason = _OPENING.sub("", reason)
    # Signed URLs of blobs are as sensitive as passwords.
    reason = _URL_PARAMETERS.sub(r"\1", reason)
    return "".join(c if c.isprintable() else " " for c in reason)[:_MOST_CHARACTERS]


def is_refusal(reason: str) -> bool:
    """Tell a registry that refuses from one that does not answer."""
    return _REFUSAL.search(reason) is not None


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(ast.literal_eval(value))  # Go's escapes are Python's
    except (SyntaxError, ValueError):
        return value
