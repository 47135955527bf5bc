"""Cookies that keep a browser's access after it opened a link: for one port of one sandbox and that port's pages."""

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

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_SAME_SITE = frozenset({"same-origin", "none"})
_SEE_OTHER = 303
_MAX_TICKETS = 4


def set_preview_cookie(ticket: str, origin: PublicOrigin, scope: Scope) -> Response:
    """Store the ticket in a cookie, and redirect to the URL without it."""
    query: bytes = scope["query_string"]
    path = scope["raw_path"] + (b"?" + query if query else b"")
    # Absolute, because a path that begins with two slashes would name another host.
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


def find_preview_tickets(scope: Scope, target: PortTarget, public: PublicAddress) -> list[str]:
    """List the tickets in cookies, if the request comes from a page of the sandbox or from navigation.

    Browsers also send them with requests of pages of other sandboxes, which share the parent domain. Only a few cookies count,
    because any number can be sent.
    """
    if not _is_trusted_request(Headers(scope=scope), scope, target, public):
        return []
    kept = preview_secrets(scope["headers"], is_secure=public.scheme == "https")
    return list(islice((each for each in dict.fromkeys(kept) if is_ticket(each)), _MAX_TICKETS))


def _is_trusted_request(
    headers: Headers, scope: Scope, target: PortTarget, public: PublicAddress
) -> bool:
    origin = headers.get("origin")
    if origin is not None:
        return _is_of_sandbox(origin, target, public)
    if headers.get("sec-fetch-site", "none") in _SAME_SITE:
        return True
    return headers.get("sec-fetch-mode") == "navigate" and scope["method"] in _SAFE_METHODS


def _is_of_sandbox(origin: str, target: PortTarget, public: PublicAddress) -> bool:
    try:
        requesting = public.find(urlsplit(origin).netloc)
    except (SandboxNotFound, ValueError):
        return False
    return requesting.sandbox_id == target.sandbox_id
