import re
import socket
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from sandbox_engine.network.kernel.links import Link
from sandbox_engine.system.errors import CannotRun

_FIRST = 2  # the first ones are the network's own address and the gateway's


class LinkAllocator:
    """Allocates links by number."""

    def __init__(self, prefix: str, *, network: IPv4Network, places: Path) -> None:
        self._prefix = prefix
        self._network = network
        self._places = places
        self._taken: set[int] = set()
        self._latest = _FIRST - 1

    def take(self) -> Link:
        """Allocate the number that has been free the longest."""
        last = self._network.num_addresses - 2
        ahead, behind = range(self._latest + 1, last + 1), range(_FIRST, self._latest + 1)
        number = next(
            (number for part in (ahead, behind) for number in part if number not in self._taken), 0
        )
        if not number:
            raise CannotRun(f"All addresses of {self._network} are in use by sandboxes.")
        self._taken.add(number)
        self._latest = number
        return self._link(number)

    def keep(self, name: str) -> Link:
        """Reserve the number of an existing link."""
        number = int(name.removeprefix(self._prefix), 16)
        self._taken.add(number)
        return self._link(number)

    def free(self, link: Link) -> None:
        """Release the number of a link."""
        self._taken.discard(int(link.name.removeprefix(self._prefix), 16))

    def _link(self, number: int) -> Link:
        name = f"{self._prefix}{number:04x}"
        address = IPv4Address(int(self._network.network_address) + number)
        return Link(name=name, netns=str(self._places / name), address=str(address))


def existing_links(prefix: str, places: Path) -> set[str]:
    """List the links of an engine of which any part exists."""
    names = {name for _, name in socket.if_nameindex()}
    names |= {place.name.partition(".")[0] for place in places.iterdir()}
    return {name for name in names if re.fullmatch(f"{prefix}[0-9a-f]{{4}}", name)}
