"""Where contents may be: forges name any address, and this server reaches more than the internet."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from sandbox_server.domain.errors import RemoteRefused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

# These carry IPv4 addresses, private ones included.
_CARRIERS = tuple(
    map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
)


@dataclass(frozen=True, kw_only=True)
class ConnectTo:
    """A URL whose host is the address that was checked, so that no other one is connected to."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    extensions: Mapping[str, str] = field(default_factory=dict)


async def resolve_host(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def is_public(address: Address) -> bool:
    """Return whether an address is one of the internet's."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if any(address in network for network in _CARRIERS):
            return False
    return address.is_global and not address.is_multicast


class AddressCheck:
    """Decides what the server connects to for a forge: the forge itself, else public addresses only."""

    def __init__(
        self,
        *,
        resolve: Resolve = resolve_host,
        is_allowed: Callable[[Address], bool] = is_public,
    ) -> None:
        self._resolve = resolve
        self._is_allowed = is_allowed

    async def check(self, url: str, *, forge: str) -> ConnectTo:
        """Return what to connect to; raises `RemoteRefused`. `forge` is the address of the repository."""
        try:
            if is_same_origin(url, forge):
                return ConnectTo(url=url)
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or _default_port(parts.scheme)
        except ValueError:
            raise _refused("an address that is not valid") from None
        if not host or parts.scheme not in _schemes(forge) or "@" in parts.netloc:
            raise _refused(f"an address that is not https ({parts.scheme}://{host})")
        try:
            addresses = [ipaddress.ip_address(each) for each in await self._resolve(host, port)]
        except (OSError, UnicodeError, ValueError):
            raise _refused(f"{host}, which has no address") from None
        if not addresses or not all(map(self._is_allowed, addresses)):
            raise _refused(f"{host}, which is not an address of the internet")
        return _pinned(parts, host, addresses[0])


def is_same_origin(url: str, other: str) -> bool:
    return _origin(url) == _origin(other)


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def _schemes(forge: str) -> Sequence[str]:
    return ("https",) if urlsplit(forge).scheme == "https" else ("http", "https")


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _pinned(parts: SplitResult, host: str, address: Address) -> ConnectTo:
    literal = f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004
    netloc = literal if parts.port is None else f"{literal}:{parts.port}"
    return ConnectTo(
        url=parts._replace(netloc=netloc, fragment="").geturl(),
        headers={"Host": parts.netloc},
        extensions={"sni_hostname": host},
    )


def _refused(what: str) -> RemoteRefused:
    return RemoteRefused("lfs", f"the forge keeps the content at {what}")
