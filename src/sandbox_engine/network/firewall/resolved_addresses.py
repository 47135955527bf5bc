import time
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from sandbox_engine.network.firewall.policy import Policy

# Limit of resolved addresses per sandbox. Its own name servers could return more.
MOST = 1024
_MOST_NAMES = 8

# Programs use addresses longer than their TTL, especially if it is a few seconds.
_SHORTEST_LIFE = 300.0
_LONGEST_LIFE = 7 * 86400.0


@dataclass(frozen=True)
class ResolvedAddress:
    """An address opened because of a name, with its remaining seconds."""

    address: IPv4Address
    name: str
    ttl: float


class ResolvedAddresses:
    """Addresses that a sandbox received for names, and when they expire.

    Expired ones are kept: a connection made in time may continue.
    """

    def __init__(self, known: Iterable[ResolvedAddress] = ()) -> None:
        self._until: dict[IPv4Address, dict[str, float]] = {}
        for opening in known:
            self._until[opening.address] = {opening.name: time.time() + opening.ttl}

    def note(self, name: str, address: IPv4Address, ttl: float) -> bool:
        """Record an address of a name; returns whether its expiry is extended."""
        ttl = min(max(ttl, _SHORTEST_LIFE), _LONGEST_LIFE)
        now = time.time()
        names = self._until.pop(address, {})
        self._until[address] = names
        if names.get(name, 0.0) - now >= ttl:
            return False
        names.pop(name, None)
        names[name] = now + 2 * ttl  # so that not every answer changes the firewall
        if len(names) > _MOST_NAMES:
            del names[next(iter(names))]
        return True

    def drop_surplus(self) -> IPv4Address | None:
        """Remove the least recently resolved address if there are too many."""
        if len(self._until) <= MOST:
            return None
        address = next(iter(self._until))
        del self._until[address]
        return address

    def find(self, address: IPv4Address, policy: Policy) -> ResolvedAddress | None:
        """Find the name that opens or opened an address; of several, the one that expires last."""
        names = self._until.get(address, {})
        opened = [(until, name) for name, until in names.items() if policy.opens(name)]
        if not opened:
            return None
        until, name = max(opened)
        return ResolvedAddress(address, name, until - time.time())

    def current(self, policy: Policy) -> list[ResolvedAddress]:
        """List the addresses to open now."""
        found = [self.find(address, policy) for address in self._until]
        return [address for address in found if address is not None and address.ttl >= 1]
