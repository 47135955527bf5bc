from sandbox_http.headers import Header
from sandbox_http.messages import ResponseHead
from sandbox_server.providers.protocol.provider import PortAddress
from sandbox_server.proxy.public_origin import PublicOrigin

# Directives for a proxy in front of this server, or about a whole host, are removed.
_PROXY_DIRECTIVES = frozenset(
    {
        b"alt-svc",
        b"date",  # set by the HTTP server
        b"x-accel-charset",
        b"x-accel-expires",
        b"x-accel-limit-rate",
        b"x-accel-redirect",
        b"x-lighttpd-send-file",
        b"x-sendfile",
    }
)
_HOST_WIDE = frozenset(
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
_CSP_SANDBOX: Header = (b"content-security-policy", b"sandbox")


def headers_for(answer: ResponseHead, origin: PublicOrigin, address: PortAddress) -> list[Header]:
    """Filter and rewrite the response headers for the client."""
    dropped = _PROXY_DIRECTIVES if origin.has_own_host else _PROXY_DIRECTIVES | _HOST_WIDE
    passed = [
        (name, _without_domain(value) if name == b"set-cookie" else value)
        for name, value in ((name.lower(), value) for name, value in answer.forwarded_headers)
        if name not in dropped
    ]
    translated = [
        (name, origin.rewrite_response_header(name, value, address)) for name, value in passed
    ]
    return translated if origin.has_own_host else [*translated, _CSP_SANDBOX]


def _without_domain(cookie: bytes) -> bytes:
    """Remove the domain, which would send the cookie to other sandboxes and the API."""
    pair, *attributes = cookie.split(b";")
    kept = [each for each in attributes if each.partition(b"=")[0].strip().lower() != b"domain"]
    return b";".join([pair, *kept])
