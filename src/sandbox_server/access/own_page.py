from collections.abc import Iterator

from starlette.datastructures import Headers
from starlette.types import Scope

from sandbox_server.domain.errors import LoginRefused
from sandbox_server.proxy.targets import PublicAddress

_HTTP = {"ws": "http", "wss": "https"}


def own_origin(scope: Scope, public: PublicAddress) -> str:
    """Name the origin that our own page has for who asks by this name."""
    host = Headers(scope=scope).get("host", "")
    scheme: str = scope["scheme"]
    return f"{public.scheme_at(host, otherwise=_HTTP.get(scheme, scheme))}://{host}"


def require_own_page(scope: Scope, public: PublicAddress) -> None:
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
