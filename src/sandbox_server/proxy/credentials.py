"""Credentials of this server, which no sandbox may see."""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_to_bytes

from sandbox_http.headers import Header

COOKIE = b"sandbox-preview"
SECURE_COOKIE = b"__Host-sandbox-preview"
LOGIN_COOKIE = b"sandbox-login"
SECURE_LOGIN_COOKIE = b"__Host-sandbox-login"

_COOKIES = frozenset({COOKIE, SECURE_COOKIE, LOGIN_COOKIE, SECURE_LOGIN_COOKIE})
# API keys, tickets and logins, anywhere in a value.
_SECRET = re.compile(rb"sb[xtl]_[A-Za-z0-9_-]{43}")


def without_credentials(headers: Iterable[Header]) -> Iterator[Header]:
    """Remove headers that contain a key or ticket, and this server's cookies."""
    for name, value in headers:
        if name == b"cookie":
            if kept := b"; ".join(_foreign_cookies(value)):
                yield name, kept
        elif not contains_credential(value):
            yield name, value


def query_without_credentials(query: bytes) -> bytes:
    """Remove query parameters that contain a key or ticket. Others stay unchanged."""
    if not query:
        return query
    return b"&".join(each for each in query.split(b"&") if not contains_credential(each))


def contains_credential(text: bytes) -> bool:
    plain = unquote_to_bytes(text) if b"%" in text else text
    return _SECRET.search(plain) is not None


def preview_secrets(headers: Iterable[Header], *, is_secure: bool) -> Iterator[str]:
    """List the values of the preview cookies.

    With TLS, only the host itself can have set the cookie. Without TLS there may be several, because a page of another
    sandbox can set one for all hosts.
    """
    name_of_cookie = SECURE_COOKIE if is_secure else COOKIE
    for name, value in headers:
        if name == b"cookie":
            for cookie in value.split(b";"):
                key, _, value_of_cookie = cookie.strip().partition(b"=")
                if key == name_of_cookie:
                    yield value_of_cookie.decode("latin-1")


def _foreign_cookies(header: bytes) -> Iterator[bytes]:
    for cookie in header.split(b";"):
        stripped = cookie.strip()
        name = stripped.partition(b"=")[0]
        if stripped and name not in _COOKIES and not contains_credential(stripped):
            yield stripped
