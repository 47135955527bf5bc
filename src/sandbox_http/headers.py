from collections.abc import Iterable, Sequence

Header = tuple[bytes, bytes]
Headers = Sequence[Header]

# Headers that concern one connection and not the message that it carries.
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
    """List the headers that a message declares hop-by-hop in its Connection header."""
    return frozenset(
        word.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for word in value.split(b",")
    )


def hop_by_hop_of_request(headers: Iterable[Header]) -> frozenset[bytes]:
    """List the headers of a request that end at a proxy.

    `Connection: content-length` is ignored: it would remove the length of the body.
    """
    return HOP_BY_HOP | (named_by_connection(headers) - {b"content-length"})


def wanted_upgrade(headers: Headers) -> bytes | None:
    """Find the protocol that a request upgrades to; offers of HTTP/2 are declined, as a server may."""
    upgrade = find_header(headers, b"upgrade")
    if upgrade is None or b"upgrade" not in named_by_connection(headers):
        return None
    return None if upgrade.lower() == b"h2c" else upgrade


def has_body(headers: Headers) -> bool:
    has_coding = find_header(headers, b"transfer-encoding") is not None
    return has_coding or find_header(headers, b"content-length") not in {None, b"0"}


def plain_name(name: bytes) -> bytes:
    """Normalize a header's name as CGI-like applications do, which treat `_` as `-`."""
    return name.lower().replace(b"_", b"-")
