"""Error pages for browsers, where programs get problem+json."""

from html import escape

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from sandbox_client.models import Problem
from sandbox_server.domain.errors import Unauthenticated
from sandbox_server.http import problems

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title></head>
<body><h1>{title}</h1><p>{detail}</p><p>{remediation}</p><p>Request {request_id}</p></body>
</html>
"""
_HOW_TO_GET_ACCESS = (
    "The link may have expired. Ask the sandbox's owner for a new one "
    "(POST /v1/sandboxes/{id}/ports/{port}/links). Programs send an API key."
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept, Sec-Fetch-Mode",
    "X-Content-Type-Options": "nosniff",
}


def render(error: Exception, scope: Scope) -> Response:
    """Render an error: as an HTML page for a browser navigation, else as problem+json."""
    request_id = scope["state"]["request_id"]
    answer: Response = problems.render(error, request_id=request_id)
    if is_navigation(scope):
        problem = Problem.model_validate_json(bytes(answer.body))
        if isinstance(error, Unauthenticated):
            problem = problem.model_copy(update={"remediation": _HOW_TO_GET_ACCESS})
        answer = _page(problem, answer)
    answer.headers.update(_HEADERS)
    return answer


def is_navigation(scope: Scope) -> bool:
    """Return whether a browser navigates to a page, unlike a script's or a program's request."""
    headers = Headers(scope=scope)
    mode = headers.get("sec-fetch-mode")
    return mode == "navigate" or (mode is None and "text/html" in headers.get("accept", ""))


def _page(problem: Problem, answer: Response) -> Response:
    texts = {
        name: escape(str(value or ""))
        for name, value in problem.model_dump(
            include={"title", "detail", "remediation", "request_id"}
        ).items()
    }
    page = HTMLResponse(_PAGE.format(**texts), answer.status_code)
    for name in ("Retry-After", "WWW-Authenticate"):
        if name in answer.headers:
            page.headers[name] = answer.headers[name]
    if "Retry-After" in answer.headers:
        page.headers["Refresh"] = answer.headers["Retry-After"]
    return page
