"""How a browser that came by a link stays let in, at one port of one sandbox and for that port's own pages."""

from itertools import islice
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from sandbox_server.access.secrets import is_ticket
from sandbox_server.domain.errors import SandboxNotFound
from sandbox_server.proxy.credentials import COOKIE, SECURE_COOKIE, preview_secrets
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.targets import PortTarget, PublicAddress

_READING = frozenset({"GET", "HEAD"})
_OWN = frozenset({"same-origin", "none"})
_SEE_OTHER = 303
_MOST = 4


def remember(ticket: str, origin: PublicOrigin, scope: Scope) -> Response:
    """Have the browser keep the ticket and ask again without it."""
    query: bytes = scope["query_string"]
    path = scope["raw_path"] + (b"?" + query if query else b"")
    # With its host, since a path that begins with two slashes names another.
    answer = RedirectResponse(origin.url + path.decode("ascii"), _SEE_OTHER)
    is_secure = origin.scheme == "https"
    answer.set_cookie(
        (SECURE_COOKIE if is_secure else COOKIE).decode(),
        ticket,
        httponly=True,
        samesite="lax",
        secure=is_secure,
    )
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["Referrer-Policy"] = "no-referrer"
    return answer


def remembered(scope: Scope, target: PortTarget, public: PublicAddress) -> list[str]:
    """List the tickets that a browser kept, if it is a page of the sandbox's that asks, or a person.

    Browsers send them along with what pages of other sandboxes ask for as well: all are below one name.
    Anybody can send any number of them, so only a few count.
    """
    if not _is_asked_for_by_itself(Headers(scope=scope), scope, target, public):
        return []
    kept = preview_secrets(scope["headers"], is_secure=public.scheme == "https")
    return list(islice((each for each in dict.fromkeys(kept) if is_ticket(each)), _MOST))


def _is_asked_for_by_itself(
    headers: Headers, scope: Scope, target: PortTarget, public: PublicAddress
) -> bool:
    origin = headers.get("origin")
    if origin is not None:
        return _is_of_sandbox(origin, target, public)
    if headers.get("sec-fetch-site", "none") in _OWN:
        return True
    return headers.get("sec-fetch-mode") == "navigate" and scope["method"] in _READING


def _is_of_sandbox(origin: str, target: PortTarget, public: PublicAddress) -> bool:
    try:
        asking = public.find(urlsplit(origin).netloc)
    except (SandboxNotFound, ValueError):
        return False
    return asking.sandbox_id == target.sandbox_id
