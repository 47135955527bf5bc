"""A sandbox's link: a routed pair of interfaces, the far end alone in a namespace of its own.

    host                                     sandbox
    route <address>/32 -> sb…       <──>     eth0 <address>/32, default via <gateway>

Neither end sends or answers ARP requests: both MACs follow from the address. Entries that
are learnt count against the kernel's limit of 1,024 neighbours for the whole machine.
"""

import errno
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from sandbox_engine.network.kernel import interfaces
from sandbox_engine.network.kernel.interfaces import LOOPBACK, Interface
from sandbox_engine.network.kernel.netlink import Netlink
from sandbox_engine.network.kernel.netns import visiting
from sandbox_engine.system.syscalls import MNT_DETACH, unmount

_CARRIER_SECONDS = 10.0
_POLL_SECONDS = 0.0005
_SYSCTL = Path("/proc/sys/net")
_UNPRIVILEGED = {  # the value of other container engines
    "ipv4/ip_unprivileged_port_start": "0",
    "ipv4/ping_group_range": "0 2147483647",
}


@dataclass(frozen=True)
class Link:
    """A sandbox's user and network namespace and its address."""

    name: str
    netns: str
    address: str

    @property
    def userns(self) -> str:
        """The user namespace that owns the network namespace."""
        return f"{self.netns}.user"


def make_places(link: Link) -> None:
    """Create the files to which the link's namespaces are bound."""
    for place in (link.userns, link.netns):
        Path(place).touch(mode=0o600, exist_ok=False)


def connect(link: Link, *, gateway: IPv4Address, mtu: int) -> None:
    """Connect the link's namespace to the host; call it in a thread for namespaces."""
    address = IPv4Address(link.address)
    here = Interface(link.name, b"\x02h" + address.packed, mtu)
    there = Interface("eth0", b"\x02s" + address.packed, mtu)
    with Netlink() as host:
        with visiting(link.netns) as namespace:
            _prepare_namespace()
            host.request(interfaces.veth(here, peer=there, netns=namespace))
        _close_ipv6(here.name)
        device = socket.if_nametoindex(here.name)
        host.request(
            interfaces.link_up(device, resolve=False),
            interfaces.neighbor(address, device=device, mac=there.mac),
            interfaces.host_route(address, device=device, source=gateway),
        )
    with visiting(link.netns), Netlink() as sandbox:
        device = socket.if_nametoindex(there.name)
        sandbox.request(
            interfaces.link_up(LOOPBACK),
            interfaces.own_address(address, device=device),
            interfaces.link_up(device, resolve=False),
            interfaces.neighbor(gateway, device=device, mac=here.mac),
            interfaces.default_route(gateway, device=device),
        )
    _await_carrier(here.name)


def remove(links: Collection[Link], *, group: int) -> None:
    """Remove links in one batch; missing ones are no error."""
    # A namespace can outlive its last process by minutes while a connection closes.
    interfaces.delete([link.name for link in links], group=group)
    for link in links:
        for place in (link.netns, link.userns):
            _unbind(place)


def _await_carrier(interface: str) -> None:
    """Wait for the carrier: the kernel detects the peer asynchronously."""
    state = Path("/sys/class/net", interface, "operstate")
    latest = time.monotonic() + _CARRIER_SECONDS
    while state.read_text() != "up\n":
        if time.monotonic() > latest:
            raise TimeoutError(f"{interface} has no carrier")
        time.sleep(_POLL_SECONDS)


def _unbind(place: str) -> None:
    try:
        unmount(place, MNT_DETACH)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):  # not mounted, or missing
            raise
    Path(place).unlink(missing_ok=True)


def _prepare_namespace() -> None:
    for name, value in _UNPRIVILEGED.items():
        (_SYSCTL / name).write_text(value)
    _close_ipv6("default")


def _close_ipv6(interface: str) -> None:
    switch = _SYSCTL / "ipv6/conf" / interface / "disable_ipv6"
    if switch.exists():  # the host may have no IPv6
        switch.write_text("1")
