"""CORS: pages of any origin may use a sandbox with its token."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Send

_MAX_AGE_SECONDS = "7200"
_EXPOSED = (
    "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, "
    "Location, Cache-Control, X-Content-Type-Options"
)


def preflight(method: str, headers: Headers) -> Response | None:
    """Answer a preflight request; None for any other request."""
    asked = headers.get("access-control-request-method")
    if method != "OPTIONS" or asked is None:
        return None
    answer = {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": asked,
        "access-control-max-age": _MAX_AGE_SECONDS,
        "vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
    }
    if wanted := headers.get("access-control-request-headers"):
        answer["access-control-allow-headers"] = wanted
    return Response(None, 204, answer)


def allowing_origins(send: Send, headers: Headers) -> Send:
    """Add the CORS headers to every response."""
    has_origin = "origin" in headers

    async def send_allowing(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer = MutableHeaders(scope=message)
            answer.append("vary", "Origin")
            if has_origin:
                answer["access-control-allow-origin"] = "*"
                answer["access-control-expose-headers"] = _EXPOSED
        await send(message)

    return send_allowing
