"""How a browser stays signed in: by a cookie that no script reads, no other site sends and no sandbox's host gets."""

from collections.abc import Iterator

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from sandbox_server.access.logins import LIFETIME
from sandbox_server.domain.errors import LoginRefused
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


_HTTP = {"ws": "http", "wss": "https"}


def own_origin(scope: Scope, public: PublicAddress) -> str:
    """Name the origin that our own page has for who asks by this name."""
    host = Headers(scope=scope).get("host", "")
    scheme: str = scope["scheme"]
    return f"{public.scheme_at(host, otherwise=_HTTP.get(scheme, scheme))}://{host}"


def require_same_origin(scope: Scope, public: PublicAddress) -> None:
    """Refuse what was not asked for by a page of this very origin.

    A browser sends a cookie along with what pages of its whole site ask for: those of sandboxes, and of other ports of the
    host. All that it says about who asks has to say that it is our page, and something has to: `Sec-Fetch-Site`, which it
    leaves out where there is no TLS; `Origin`, which it leaves out of reads; or the address of the page.
    """
    headers, own = Headers(scope=scope), own_origin(scope, public)
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in {None, "same-origin"}:
        raise LoginRefused("Who is signed in is known to pages of this server alone.")
    if origin is not None and origin != own:
        raise LoginRefused(
            f"Who is signed in is known to pages of {own} alone. If that is not the address of this server as you "
            "have it, it has to be told: `--public-url`."
        )
    if not any(_proofs(scope, headers, own)):
        raise LoginRefused("The browser does not say which page asks.")


def _proofs(scope: Scope, headers: Headers, own: str) -> Iterator[bool]:
    yield headers.get("origin") == own
    if scope["type"] == "http":  # with a WebSocket every browser tells the origin
        yield headers.get("sec-fetch-site") == "same-origin"
        # Of this origin, by its address, is also what a sandbox serves below a path of ours.
        yield headers.get("referer") == f"{own}/"
