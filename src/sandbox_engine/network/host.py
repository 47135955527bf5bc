"""The host's own network settings, as far as the engine reads or changes them."""

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
# A host with such an address, of carrier-grade NAT or an overlay like Tailscale, has neighbours in
# the whole range.
_SHARED = IPv4Network("100.64.0.0/10")


def enable_forwarding() -> None:
    """Enable IPv4 forwarding if it is disabled."""
    if _FORWARDING.read_text().strip() == "0":
        _FORWARDING.write_text("1")
        log.info("enabled forwarding", setting="net.ipv4.ip_forward")


def mtu() -> int:
    """Return the MTU towards the internet."""
    defaults = [route for route in interfaces.routes() if route.to.prefixlen == 0 and route.device]
    if not defaults:
        return _USUAL_MTU
    device = min(defaults, key=lambda route: route.metric).device
    return int(Path("/sys/class/net", socket.if_indextoname(device), "mtu").read_text())


def own_networks() -> set[IPv4Network]:
    """List the networks that the host is connected to."""
    found = interfaces.connected_networks()
    return {_SHARED if network.subnet_of(_SHARED) else network for network in found}


def add_address(address: IPv4Address) -> None:
    """Add an address to the loopback interface; not every kernel has dummy devices."""
    with Netlink() as kernel:
        kernel.request(interfaces.own_address(address, device=LOOPBACK))


def remove_address(address: IPv4Address) -> None:
    with Netlink() as kernel:
        kernel.request(interfaces.disown_address(address, device=LOOPBACK))
