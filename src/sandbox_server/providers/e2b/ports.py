"""Addresses of servers in sandboxes, and a provider's refusals to forward traffic."""

import ssl
from functools import cached_property
from http import HTTPStatus
from urllib.parse import urlsplit

from e2b.exceptions import SANDBOX_NOT_FOUND_MESSAGE, SANDBOX_PORT_NOT_OPEN_MESSAGE

from sandbox_server.providers.protocol.provider import Access, Endpoint, PortAddress, PortRefusal

_DEFAULT_PORTS = {"http": 80, "https": 443}
# Programs get JSON with these texts, browsers a page with these titles.
_REFUSALS = {
    SANDBOX_PORT_NOT_OPEN_MESSAGE: PortRefusal.CLOSED,
    "Closed Port Error": PortRefusal.CLOSED,
    SANDBOX_NOT_FOUND_MESSAGE: PortRefusal.GONE,
    "Sandbox Not Found": PortRefusal.GONE,
    "Sandbox not found": PortRefusal.GONE,
}


class Ports:
    """Ports of one provider's sandboxes."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def address(self, access: Access, port: int) -> PortAddress:
        """Build the address of a port of a sandbox."""
        shared = self._endpoint.sandbox_url
        url = urlsplit(shared or self._url(access, port))
        headers = []
        if shared is not None:
            headers = [
                (b"e2b-sandbox-id", access.provider_id.encode()),
                (b"e2b-sandbox-port", b"%d" % port),
            ]
        if access.traffic_token is not None:
            headers.append((b"e2b-traffic-access-token", access.traffic_token.encode()))
        return PortAddress(
            sandbox=access.provider_id,
            port=port,
            host=url.hostname or "",
            host_port=url.port or _DEFAULT_PORTS[url.scheme],
            tls=self._tls if url.scheme == "https" else None,
            headers=headers,
            authority=url.netloc,
            is_shared=shared is not None,
        )

    def _url(self, access: Access, port: int) -> str:
        """Build the provider's own host name of a port."""
        scheme = urlsplit(self._endpoint.sandbox_url or self._endpoint.api_url).scheme
        domain = access.domain or self._endpoint.domain
        return f"{scheme}://{port}-{access.provider_id}.{domain}"

    def find_refusal(self, address: PortAddress, status: int, body: bytes) -> PortRefusal | None:
        """Detect an answer of the provider in place of the sandbox's server."""
        text = body.decode(errors="replace")
        if status != HTTPStatus.BAD_GATEWAY or address.sandbox not in text:
            return None
        return next((refusal for words, refusal in _REFUSALS.items() if words in text), None)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._endpoint.ca_cert is not None:
            context.load_verify_locations(cadata=self._endpoint.ca_cert.decode())
        return context
