"""rtnetlink requests for interfaces, addresses and routes."""

import errno
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from sandbox_engine.network.kernel.netlink import (
    ACK,
    CREATE,
    EXCLUSIVE,
    REPLACE,
    Netlink,
    attribute,
    attributes,
    message,
    nested,
    number,
    text,
)

LOOPBACK = 1  # its index in every namespace
ADDRESS_CHANGES = 0x10

_NEW_LINK, _DELETE_LINK, _SET_LINK = 16, 17, 19
_NEW_ADDRESS, _DELETE_ADDRESS, _GET_ADDRESS = 20, 21, 22
_NEW_ROUTE, _GET_ROUTE = 24, 26
_NEW_NEIGHBOR = 28

_LINK_MAC, _LINK_NAME, _LINK_MTU, _LINK_INFO, _LINK_GROUP, _LINK_NETNS = 1, 3, 4, 18, 27, 28
_LINK_SEND_QUEUES, _LINK_RECEIVE_QUEUES = 31, 32
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_ADDRESS, _LOCAL = 1, 2
_TO, _DEVICE, _GATEWAY, _METRIC, _SOURCE = 1, 4, 5, 6, 7
_NEIGHBOR_ADDRESS, _NEIGHBOR_MAC = 1, 2

_UP, _NO_ARP = 0x01, 0x80
_PERMANENT = 0x80
_TABLE_MAIN, _STATIC, _UNICAST, _GATEWAY_ON_LINK = 254, 4, 1, 4
_SCOPE_GLOBAL, _SCOPE_LINK, _SCOPE_HOST = 0, 253, 254

_LINK_BODY = struct.Struct("=BxHiII")  # family, type, index, flags, mask of flags
_ADDRESS_BODY = struct.Struct("=BBBBI")  # family, prefix, flags, scope, index
_ROUTE_BODY = struct.Struct("=BBBBBBBBI")  # family, 2 prefixes, tos, table, origin, scope, type, …
_NEIGHBOR_BODY = struct.Struct("=BxxxiHBB")  # family, index, state, flags, type
_BY_NAME = bytes(_LINK_BODY.size)


@dataclass(frozen=True)
class Route:
    """A route of this host."""

    to: IPv4Network
    device: int
    metric: int


@dataclass(frozen=True)
class Interface:
    """Parameters of one end of a veth pair."""

    name: str
    mac: bytes
    mtu: int


def routes() -> list[Route]:
    """List the host's IPv4 routes of all tables."""
    with Netlink() as kernel:
        listed = list(kernel.dump(_GET_ROUTE, _ROUTE_BODY.pack(socket.AF_INET, *[0] * 8)))
    return [_route(body) for body in listed]


def connected_networks() -> set[IPv4Network]:
    """List the networks of the host's addresses, except loopback."""
    with Netlink() as kernel:
        listed = list(kernel.dump(_GET_ADDRESS, _ADDRESS_BODY.pack(socket.AF_INET, *[0] * 4)))
    return {_network(body) for body in listed if _ADDRESS_BODY.unpack_from(body)[4] != LOOPBACK}


def delete(names: Iterable[str], *, group: int) -> None:
    """Delete interfaces at once through a group; missing ones are no error."""
    with Netlink() as kernel:
        for name in names:
            joined = text(_LINK_NAME, name) + number(_LINK_GROUP, group)
            _request_if_there(kernel, message(_SET_LINK, _BY_NAME, joined))
        _request_if_there(kernel, message(_DELETE_LINK, _BY_NAME, number(_LINK_GROUP, group)))


def veth(end: Interface, *, peer: Interface, netns: int) -> bytes:
    """Build a request for a veth pair with the peer in the namespace `netns`."""
    there = nested(_VETH_PEER, _BY_NAME, _described(peer), number(_LINK_NETNS, netns))
    pair = text(_INFO_KIND, "veth") + nested(_INFO_DATA, there)
    return message(
        _NEW_LINK, _BY_NAME, _described(end), nested(_LINK_INFO, pair),
        flags=ACK | CREATE | EXCLUSIVE,
    )  # fmt: skip


def link_up(device: int, *, resolve: bool = True) -> bytes:
    """Build a request that sets an interface up, with or without ARP."""
    flags = _UP if resolve else _UP | _NO_ARP
    return message(_SET_LINK, _LINK_BODY.pack(0, 0, device, flags, flags))


def own_address(address: IPv4Address, *, device: int) -> bytes:
    """Build a request that adds an address with prefix /32."""
    return message(_NEW_ADDRESS, _address(address, device), flags=ACK | CREATE | REPLACE)


def disown_address(address: IPv4Address, *, device: int) -> bytes:
    """Build a request that removes an address."""
    return message(_DELETE_ADDRESS, _address(address, device))


def host_route(to: IPv4Address, *, device: int, source: IPv4Address) -> bytes:
    """Build a request for a host route over an interface."""
    head = (socket.AF_INET, 32, 0, 0, _TABLE_MAIN, _STATIC, _SCOPE_LINK, _UNICAST, 0)
    return message(
        _NEW_ROUTE,
        _ROUTE_BODY.pack(*head),
        attribute(_TO, to.packed),
        attribute(_SOURCE, source.packed),
        number(_DEVICE, device),
        flags=ACK | CREATE,
    )


def default_route(gateway: IPv4Address, *, device: int) -> bytes:
    """Build a request for a default route over an on-link gateway."""
    head = (socket.AF_INET, 0, 0, 0, _TABLE_MAIN, _STATIC, _SCOPE_GLOBAL, _UNICAST)
    return message(
        _NEW_ROUTE,
        _ROUTE_BODY.pack(*head, _GATEWAY_ON_LINK),
        attribute(_GATEWAY, gateway.packed),
        number(_DEVICE, device),
        flags=ACK | CREATE,
    )


def neighbor(address: IPv4Address, *, device: int, mac: bytes) -> bytes:
    """Build a request for a permanent neighbour entry."""
    return message(
        _NEW_NEIGHBOR,
        _NEIGHBOR_BODY.pack(socket.AF_INET, device, _PERMANENT, 0, 0),
        attribute(_NEIGHBOR_ADDRESS, address.packed),
        attribute(_NEIGHBOR_MAC, mac),
        flags=ACK | CREATE,
    )


def _described(interface: Interface) -> bytes:
    return (
        text(_LINK_NAME, interface.name)
        + attribute(_LINK_MAC, interface.mac)
        + number(_LINK_MTU, interface.mtu)
        + number(_LINK_SEND_QUEUES, 1)  # the default is one queue per core
        + number(_LINK_RECEIVE_QUEUES, 1)
    )


def _address(address: IPv4Address, device: int) -> bytes:
    scope = _SCOPE_HOST if device == LOOPBACK else _SCOPE_GLOBAL
    body = _ADDRESS_BODY.pack(socket.AF_INET, 32, 0, scope, device)
    return body + attribute(_LOCAL, address.packed) + attribute(_ADDRESS, address.packed)


def _request_if_there(kernel: Netlink, request: bytes) -> None:
    try:
        kernel.request(request)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


def _route(body: bytes) -> Route:
    prefix = _ROUTE_BODY.unpack_from(body)[1]
    found = attributes(body[_ROUTE_BODY.size :])
    return Route(
        to=IPv4Network((found.get(_TO, bytes(4)), prefix)),
        device=_integer(found.get(_DEVICE)),
        metric=_integer(found.get(_METRIC)),
    )


def _network(body: bytes) -> IPv4Network:
    prefix = _ADDRESS_BODY.unpack_from(body)[1]
    return IPv4Network((attributes(body[_ADDRESS_BODY.size :])[_ADDRESS], prefix), strict=False)


def _integer(data: bytes | None) -> int:
    return int(struct.unpack("=I", data)[0]) if data else 0
