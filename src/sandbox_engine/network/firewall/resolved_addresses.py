import time
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from sandbox_engine.network.firewall.policy import Policy

# What a sandbox may have open for names' sake. Its own name servers could fill more than that.
MOST = 1024
_MOST_NAMES = 8

# Programs keep addresses for longer than they are told to, the more so where that is seconds.
_SHORTEST_LIFE = 300.0
_LONGEST_LIFE = 7 * 86400.0


@dataclass(frozen=True)
class ResolvedAddress:
    """An address that may be reached for a name's sake, for so many more seconds."""

    address: IPv4Address
    name: str
    life: float


class ResolvedAddresses:
    """The addresses that a sandbox was told for the names it asked for, and until when they hold.

    What has run out is kept: a connection made in time may go on.
    """

    def __init__(self, known: Iterable[ResolvedAddress] = ()) -> None:
        self._until: dict[IPv4Address, dict[str, float]] = {}
        for opening in known:
            self._until[opening.address] = {opening.name: time.time() + opening.life}

    def note(self, name: str, address: IPv4Address, life: float) -> bool:
        """Remember what a name resolved to; tells whether the address holds longer for it."""
        life = min(max(life, _SHORTEST_LIFE), _LONGEST_LIFE)
        now = time.time()
        names = self._until.pop(address, {})
        self._until[address] = names
        if names.get(name, 0.0) - now >= life:
            return False
        names.pop(name, None)
        names[name] = now + 2 * life  # so that not every answer is a change of the firewall
        if len(names) > _MOST_NAMES:
            del names[next(iter(names))]
        return True

    def drop_surplus(self) -> IPv4Address | None:
        """Forget the address that was told the longest ago, where there are too many."""
        if len(self._until) <= MOST:
            return None
        address = next(iter(self._until))
        del self._until[address]
        return address

    def find(self, address: IPv4Address, policy: Policy) -> ResolvedAddress | None:
        """Find what opens an address, or did; of several names the one that holds longest."""
        names = self._until.get(address, {})
        opened = [(until, name) for name, until in names.items() if policy.opens(name)]
        if not opened:
            return None
        until, name = max(opened)
        return ResolvedAddress(address, name, until - time.time())

    def current(self, policy: Policy) -> list[ResolvedAddress]:
        """List what is to be open now."""
        found = [self.find(address, policy) for address in self._until]
        return [one for one in found if one is not None and one.life >= 1]
