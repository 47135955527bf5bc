import hmac
from ipaddress import IPv4Address, IPv6Address, ip_address

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import Scope

from sandbox_server.domain.errors import MetricsRefused

METRICS_PATH = "/metrics"

# Whoever sends one of these speaks for somebody else, or is a browser that shows somebody's page.
_ON_BEHALF = frozenset({"forwarded", "origin", "via", "x-real-ip"})
_ON_BEHALF_PREFIX = "x-forwarded-"


class MetricsAccess:
    """Lets those read the metrics who have the token; where none is set, whoever asks on this machine for itself.

    A proxy here that adds no header cannot be told from the machine itself: behind one a token is needed, and then
    nobody is let in for being here.
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
    on_behalf = any(
        name in _ON_BEHALF or name.startswith(_ON_BEHALF_PREFIX)
        for name in headers.keys()  # noqa: SIM118
    )
    # By the name of a page's own host a browser would ask for the page.
    return _is_loopback(peer) and _is_loopback(_host_of(headers)) and not on_behalf


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
