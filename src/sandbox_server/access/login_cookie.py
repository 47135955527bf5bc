"""The session cookie of a browser: unreadable for scripts, not sent by other sites or to hosts of sandboxes."""

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
_PAGE_HEADER = "x-sandbox-page"


def find_login(scope: Scope, public: PublicAddress) -> str | None:
    """Find the session secret; none if there are several, since a sandbox's page may have set one of them."""
    name = _name(scope, public).encode()
    kept = [
        value
        for header, values in scope["headers"]
        if header == b"cookie"
        for key, _, value in (each.strip().partition(b"=") for each in values.split(b";"))
        if key == name
    ]
    return kept[0].decode("latin-1") if len(kept) == 1 else None


def set_login_cookie(
    response: Response, secret: str, connection: HTTPConnection, public: PublicAddress
) -> None:
    _set(response, secret, connection, public, max_age=int(LIFETIME.total_seconds()))


def clear_login_cookie(
    response: Response, connection: HTTPConnection, public: PublicAddress
) -> None:
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
    # The `__Host-` prefix, which requires TLS, keeps a sandbox's page from setting a cookie of this name for us.
    return (SECURE_LOGIN_COOKIE if _is_secure(scope, public) else LOGIN_COOKIE).decode()


def _is_secure(scope: Scope, public: PublicAddress) -> bool:
    return own_origin(scope, public).startswith(_HTTPS)


_HTTP = {"ws": "http", "wss": "https"}


def own_origin(scope: Scope, public: PublicAddress) -> str:
    """Build the origin of our own page for a request to this host name."""
    host = Headers(scope=scope).get("host", "")
    scheme: str = scope["scheme"]
    return f"{public.scheme_at(host, otherwise=_HTTP.get(scheme, scheme))}://{host}"


def require_same_origin(scope: Scope, public: PublicAddress) -> None:
    """Reject a request that does not come from a page of this origin.

    Browsers send a cookie with requests from every page of the same site, including pages of sandboxes and of other
    ports of the host. At least one header must prove the origin and none may contradict it: `Sec-Fetch-Site` (absent
    without TLS), `Origin` (absent on reads), `Referer`, or `X-Sandbox-Page: 1`, which scripts of other origins can send
    only together with their `Origin`.
    """
    headers, own = Headers(scope=scope), own_origin(scope, public)
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in {None, "same-origin"}:
        raise LoginRefused("The session cookie is accepted only from this server's own page.")
    if origin is not None and origin != own:
        raise LoginRefused(
            f"The session cookie is accepted only from pages of {own}. If this server has another public address, "
            "start it with `--public-url`."
        )
    if not any(_proofs(scope, headers, own)):
        raise LoginRefused("The browser did not send the origin of the page.")


def _proofs(scope: Scope, headers: Headers, own: str) -> Iterator[bool]:
    yield headers.get("origin") == own
    if scope["type"] == "http":  # for WebSockets every browser sends `Origin`
        yield headers.get("sec-fetch-site") == "same-origin"
        # The page's exact URL: pages of sandboxes are served from this origin too, below a path.
        yield headers.get("referer") == f"{own}/"
        yield headers.get(_PAGE_HEADER) == "1"
