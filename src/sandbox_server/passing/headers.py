from collections.abc import Iterable, Sequence

Header = tuple[bytes, bytes]
Headers = Sequence[Header]

# What is about one connection and not about the message that it carries.
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


def find_header(headers: Iterable[Header], name: bytes) -> bytes | None:
    """Find the first value of a header; `name` is in lower case."""
    return next((value for key, value in headers if key.lower() == name), None)


def named_by_connection(headers: Iterable[Header]) -> frozenset[bytes]:
    """List the headers that a message says are about its connection alone."""
    return frozenset(
        word.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for word in value.split(b",")
    )


def plain_name(name: bytes) -> bytes:
    """Give a header's name as many applications read it: CGI and its heirs take `_` and `-` for the same."""
    return name.lower().replace(b"_", b"-")
