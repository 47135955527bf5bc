import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Network,
    collapse_addresses,
    ip_interface,
)

from sandbox_engine.system.errors import InvalidRequest, NotImplementedHere

ALL_TRAFFIC = IPv4Network("0.0.0.0/0")

_MOST_ENTRIES = 1000
_MOST_DNS_SERVERS = 10
_LONGEST_NAME = 253
_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"\*|(\*\.)?({_LABEL}\.)*(?![0-9]+$){_LABEL}")


@dataclass(frozen=True)
class Policy:
    """Egress policy of a sandbox; allow rules take precedence over deny rules."""

    allow: tuple[IPv4Network, ...] = ()
    deny: tuple[IPv4Network, ...] = ()
    names: frozenset[str] = frozenset()

    @staticmethod
    def parse(
        *,
        allow_out: Sequence[str] = (),
        deny_out: Sequence[str] = (),
        dns_servers: Sequence[str] = (),
        internet: bool = True,
    ) -> "Policy":
        """Parse a request; raises InvalidRequest with E2B's messages."""
        return _read(tuple(allow_out), tuple(deny_out), tuple(dns_servers), internet=internet)

    @property
    def is_open(self) -> bool:
        """Whether everything is allowed."""
        return not self.deny or self.allow == (ALL_TRAFFIC,)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is allowed."""
        return self.denies_the_rest and not self.allow and not self.names

    @property
    def is_partial(self) -> bool:
        """Whether the decision depends on the address."""
        return not self.is_open and not self.is_closed

    @property
    def denies_the_rest(self) -> bool:
        """Whether everything not allowed explicitly is denied."""
        return self.deny == (ALL_TRAFFIC,)

    def permits(self, address: IPv4Address) -> bool:
        """Return whether an address is allowed without regard to names."""
        return _has(self.allow, address) or not _has(self.deny, address)

    def opens(self, name: str) -> bool:
        """Return whether the addresses of a name are allowed because of the name."""
        if name in self.names or "*" in self.names:
            return True
        labels = name.split(".")
        return any(f"*.{'.'.join(labels[n:])}" in self.names for n in range(1, len(labels)))

    def may_resolve(self, name: str) -> bool:
        """Return whether a name may be resolved: DNS queries can carry data out."""
        return self.is_open or not self.denies_the_rest or self.opens(name)


OPEN = Policy()
CLOSED = Policy(deny=(ALL_TRAFFIC,))


@lru_cache(maxsize=256)  # takes tens of milliseconds for a thousand entries
def _read(
    allow_out: tuple[str, ...],
    deny_out: tuple[str, ...],
    dns_servers: tuple[str, ...],
    *,
    internet: bool,
) -> Policy:
    for option, entries in (("allowOut", allow_out), ("denyOut", deny_out)):
        if len(entries) > _MOST_ENTRIES:
            raise InvalidRequest(
                f"{option} has {len(entries)} entries; at most {_MOST_ENTRIES} are allowed"
            )
    allowed, names = _allowed(allow_out)
    denied = [*_denied(deny_out), *(() if internet else (ALL_TRAFFIC,))]
    servers = _servers(dns_servers)
    if names and ALL_TRAFFIC not in denied:
        raise InvalidRequest(
            "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in "
            "deny out to block all other traffic."
        )
    return Policy(
        allow=tuple(collapse_addresses([*allowed, *(servers if names else ())])),
        deny=tuple(collapse_addresses(denied)),
        names=names,
    )


def _allowed(entries: Collection[str]) -> tuple[list[IPv4Network], frozenset[str]]:
    networks, names = [], set()
    for entry in entries:
        network = _network(entry)
        if isinstance(network, IPv6Network):
            raise NotImplementedHere("Reaching IPv6 addresses")
        if network is not None:
            networks.append(network)
        elif (name := _name(entry)) is not None:
            names.add(name)
        else:
            raise InvalidRequest(f"invalid allowed address {entry}")
    return networks, frozenset(names)


def _denied(entries: Collection[str]) -> list[IPv4Network]:
    networks = []
    for entry in entries:
        network = _network(entry)
        if network is None:
            raise InvalidRequest(f"invalid denied CIDR {entry}")
        if isinstance(network, IPv4Network):  # sandboxes have no IPv6
            networks.append(network)
    return networks


def _servers(entries: Sequence[str]) -> list[IPv4Network]:
    if len(entries) > _MOST_DNS_SERVERS:
        raise InvalidRequest(f"at most {_MOST_DNS_SERVERS} DNS servers are allowed")
    try:
        return [IPv4Network(IPv4Address(entry)) for entry in entries]
    except ValueError as error:
        raise InvalidRequest(f"invalid DNS server: {error}") from None


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    try:
        interface = ip_interface(entry)
    except ValueError:
        return None
    is_rest = interface.network == ALL_TRAFFIC
    return interface.network if is_rest or not interface.ip.is_unspecified else None


def _name(entry: str) -> str | None:
    try:
        name = entry.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        return None
    return name if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) else None


def _has(networks: Collection[IPv4Network], address: IPv4Address) -> bool:
    return any(address in network for network in networks)
