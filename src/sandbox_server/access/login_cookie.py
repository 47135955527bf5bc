"""How a browser stays signed in: by a cookie that no script reads, no other site sends and no sandbox's host gets."""

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from sandbox_server.access.logins import LIFETIME
from sandbox_server.access.own_page import own_origin
from sandbox_server.proxy.credentials import LOGIN_COOKIE, SECURE_LOGIN_COOKIE
from sandbox_server.proxy.targets import PublicAddress

_HTTPS = "https://"


def find_login(scope: Scope, public: PublicAddress) -> str | None:
    """Find what the browser keeps; of several, of which a page of a sandbox can have set one, none counts."""
    name = _name(scope, public).encode()
    kept = [
        value
        for header, values in scope["headers"]
        if header == b"cookie"
        for key, _, value in (each.strip().partition(b"=") for each in values.split(b";"))
        if key == name
    ]
    return kept[0].decode("latin-1") if len(kept) == 1 else None


def remember_login(
    response: Response, secret: str, connection: HTTPConnection, public: PublicAddress
) -> None:
    _set(response, secret, connection, public, max_age=int(LIFETIME.total_seconds()))


def forget_login(response: Response, connection: HTTPConnection, public: PublicAddress) -> None:
    _set(response, "", connection, public, max_age=0)


def _set(
    response: Response,
    value: str,
    connection: HTTPConnection,
    public: PublicAddress,
    *,
    max_age: int,
) -> None:
    response.set_cookie(
        _name(connection.scope, public),
        value,
        max_age=max_age,
        httponly=True,
        samesite="strict",
        secure=_is_secure(connection.scope, public),
    )


def _name(scope: Scope, public: PublicAddress) -> str:
    # With `__Host-`, which takes TLS, a browser lets no page of a sandbox set a cookie of this name for us.
    return (SECURE_LOGIN_COOKIE if _is_secure(scope, public) else LOGIN_COOKIE).decode()


def _is_secure(scope: Scope, public: PublicAddress) -> bool:
    return own_origin(scope, public).startswith(_HTTPS)
