from sandbox_http.headers import Header
from sandbox_http.messages import ResponseHead
from sandbox_server.providers.protocol.provider import PortAddress
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.set_cookie import narrowed

# What is said to a proxy in front of us, or about all of a host, is not an application's to say.
_TO_PROXIES = frozenset(
    {
        b"alt-svc",
        b"date",  # our own HTTP server says it
        b"x-accel-charset",
        b"x-accel-expires",
        b"x-accel-limit-rate",
        b"x-accel-redirect",
        b"x-lighttpd-send-file",
        b"x-sendfile",
    }
)
_ABOUT_ALL_OF_A_HOST = frozenset(
    {
        b"clear-site-data",
        b"nel",
        b"public-key-pins",
        b"report-to",
        b"reporting-endpoints",
        b"service-worker-allowed",
        b"set-cookie",
        b"strict-transport-security",
    }
)
_SANDBOXED: Header = (b"content-security-policy", b"sandbox")


def headers_for(answer: ResponseHead, origin: PublicOrigin, address: PortAddress) -> list[Header]:
    """List what of an answer goes on to the client."""
    dropped = _TO_PROXIES if origin.has_own_host else _TO_PROXIES | _ABOUT_ALL_OF_A_HOST
    passed = [
        (name, narrowed(value) if name == b"set-cookie" else value)
        for name, value in ((name.lower(), value) for name, value in answer.forwarded_headers)
        if name not in dropped
    ]
    translated = [
        (name, origin.rewrite_response_header(name, value, address)) for name, value in passed
    ]
    return translated if origin.has_own_host else [*translated, _SANDBOXED]
