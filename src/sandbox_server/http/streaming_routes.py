import re

from starlette.types import Scope

_SANDBOX = r"/v1/sandboxes/[a-z0-9]{20}"
_TRANSFERS = re.compile(rf"{_SANDBOX}/files/(?:content|archive)")
_STREAMED = re.compile(
    rf"{_TRANSFERS.pattern}|{_SANDBOX}/ports/[0-9]+/proxy(?:/.*)?|/git/.*|/browser/.*|/browserbase/connect.*",
    re.DOTALL,
)


def is_streamed(scope: Scope) -> bool:
    """Return whether a request's body is forwarded as it arrives, without a size limit."""
    return scope["type"] == "http" and _STREAMED.fullmatch(scope["path"]) is not None


def is_transfer(scope: Scope) -> bool:
    """Return whether a request uploads or downloads file contents."""
    return scope["type"] == "http" and _TRANSFERS.fullmatch(scope["path"]) is not None
