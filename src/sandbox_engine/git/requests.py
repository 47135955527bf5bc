"""Which requests of sandboxes go to the server's git endpoint, and with which headers."""

import re
from typing import Any

from sandbox_http.headers import Header, Headers, wanted_upgrade

_METHODS = frozenset({"GET", "POST", "PUT"})
# No percent-encoding, no empty segment and none of only dots: the server and proxies before it read such paths in
# different ways. No name of a repository or ref needs them.
_SEGMENT = rb"(?!\.+(?:/|\?|$))[A-Za-z0-9._~+@:-]+"
_TARGET = re.compile(rb"/git(?:/" + _SEGMENT + rb"){3,16}(?:\?[A-Za-z0-9._~=&+-]{0,512})?")
_LONGEST_TARGET = 2048

# Everything else is dropped: credentials, cookies, forwarding headers, and a forged origin.
_PASSED_ON = frozenset(
    {
        *(b"accept", b"accept-encoding", b"content-encoding", b"content-length", b"content-type"),
        *(b"git-protocol", b"user-agent"),
    }
)


def target_of(scope: Any) -> bytes:
    """Return the target of a request as it goes to the server."""
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"]
    return path + b"?" + query if query else path


def is_git_request(scope: Any) -> bool:
    """Return whether a request is one that the door forwards."""
    target = target_of(scope)
    return (
        scope["type"] == "http"
        and scope["method"] in _METHODS
        and len(target) <= _LONGEST_TARGET
        and _TARGET.fullmatch(target) is not None
        and wanted_upgrade(scope["headers"]) is None
    )


def passed_on(headers: Headers) -> list[Header]:
    """List the headers of a request that the server gets."""
    return [(name, value) for name, value in headers if name in _PASSED_ON]
