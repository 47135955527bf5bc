import hmac
from ipaddress import IPv4Address, IPv6Address, ip_address

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import Scope

from sandbox_server.domain.errors import MetricsRefused

METRICS_PATH = "/metrics"

# Headers that only a proxy or a browser sends.
_PROXY_HEADERS = frozenset({"forwarded", "origin", "via", "x-real-ip"})
_PROXY_HEADER_PREFIX = "x-forwarded-"


class MetricsAccess:
    """Allows metrics to be read with the token or, if none is set, by direct requests from this machine.

    A local proxy that adds no header cannot be distinguished from a direct request. Set a token behind a proxy: then
    local requests need it too.
    """

    def __init__(self, token: SecretStr | None) -> None:
        self._token = None if token is None else token.get_secret_value().encode()

    def require(self, scope: Scope, secret: str | None) -> None:
        if self._token is None:
            allowed = _is_own_machine(scope)
        else:
            allowed = hmac.compare_digest((secret or "").encode(), self._token)
        if not allowed:
            raise MetricsRefused


def _is_own_machine(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    peer, _ = scope.get("client") or ("", 0)
    is_proxied = any(
        name in _PROXY_HEADERS or name.startswith(_PROXY_HEADER_PREFIX)
        for name in headers.keys()  # noqa: SIM118
    )
    # Checking `Host` too defeats DNS rebinding, by which a page could read the metrics through a browser here.
    return _is_loopback(peer) and _is_loopback(_host_of(headers)) and not is_proxied


def _host_of(headers: Headers) -> str:
    host = headers.get("host", "")
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name = host.partition(":")[0]
    return "127.0.0.1" if name.lower() == "localhost" else name


def _is_loopback(address: str) -> bool:
    try:
        found: IPv4Address | IPv6Address = ip_address(address)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback
