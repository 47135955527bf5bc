"""What the engine asks of the host's own network, and the little that it changes there."""

import socket
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from sandbox_engine.network.kernel import interfaces
from sandbox_engine.network.kernel.interfaces import LOOPBACK
from sandbox_engine.network.kernel.netlink import Netlink
from sandbox_engine.system.log import get_logger

log = get_logger(__name__)

_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_USUAL_MTU = 1500
# Where a host has such an address, of a carrier's network or of an overlay like Tailscale's, its
# neighbours are all over the range.
_SHARED = IPv4Network("100.64.0.0/10")


def enable_forwarding() -> None:
    """Have the host pass on packets between its interfaces, if it does not yet."""
    if _FORWARDING.read_text().strip() == "0":
        _FORWARDING.write_text("1")
        log.info("enabled forwarding", setting="net.ipv4.ip_forward")


def mtu() -> int:
    """Tell how large packets may be on the way to the internet."""
    defaults = [route for route in interfaces.routes() if route.to.prefixlen == 0 and route.device]
    if not defaults:
        return _USUAL_MTU
    device = min(defaults, key=lambda route: route.metric).device
    return int(Path("/sys/class/net", socket.if_indextoname(device), "mtu").read_text())


def own_networks() -> set[IPv4Network]:
    """List the networks that the host is itself part of."""
    found = interfaces.connected_networks()
    return {_SHARED if network.subnet_of(_SHARED) else network for network in found}


def add_address(address: IPv4Address) -> None:
    """Make an address the host's own; on the loopback, for not every kernel has dummy devices."""
    with Netlink() as kernel:
        kernel.request(interfaces.own_address(address, device=LOOPBACK))


def remove_address(address: IPv4Address) -> None:
    with Netlink() as kernel:
        kernel.request(interfaces.disown_address(address, device=LOOPBACK))
