"""The kernel's connection tracking table, for sandboxes' connections."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address

from sandbox_engine.network.kernel.netlink import (
    NETFILTER,
    Netlink,
    attribute,
    attributes,
    message,
    nested,
    number,
)

_GET, _DELETE = (1 << 8 | kind for kind in (1, 2))
_HEAD = struct.pack("!BBH", socket.AF_INET, 0, 0)
_ORIGINAL, _IDENTITY, _FILTER = 1, 12, 25
_ENDS, _SOURCE, _DESTINATION = 1, 1, 2
_OF_ORIGINAL, _OF_REPLY, _BY_SOURCE = 1, 2, 1


def is_there() -> bool:
    """Return whether this kernel allows reading the table."""
    try:
        with Netlink(NETFILTER) as kernel:
            list(_connections(kernel, IPv4Address(0)))
    except OSError:
        return False
    return True


def cut(source: IPv4Address, *, unless: Callable[[IPv4Address], bool]) -> None:
    """Delete connections from an address, except to the spared destinations.

    Later packets of a deleted connection are treated as a new one.
    """
    with Netlink(NETFILTER) as kernel:
        doomed = [
            connection
            for connection, destination in list(_connections(kernel, source))
            if not unless(destination)
        ]
        for connection in doomed:
            with suppress(FileNotFoundError):  # it ended by itself
                kernel.request(message(_DELETE, _HEAD, connection))


def _connections(kernel: Netlink, source: IPv4Address) -> Iterator[tuple[bytes, IPv4Address]]:
    """List the connections from an address, with their destinations."""
    wanted = nested(_ORIGINAL, nested(_ENDS, attribute(_SOURCE, source.packed)))
    by_source = nested(_FILTER, number(_OF_ORIGINAL, _BY_SOURCE), number(_OF_REPLY, 0))
    for body in kernel.dump(_GET, _HEAD, wanted, by_source):
        found = attributes(body[len(_HEAD) :])
        ends = attributes(attributes(found[_ORIGINAL])[_ENDS])
        if ends[_SOURCE] == source.packed:  # kernels before 5.8 ignore the filter
            name = nested(_ORIGINAL, found[_ORIGINAL]) + attribute(_IDENTITY, found[_IDENTITY])
            yield name, IPv4Address(ends[_DESTINATION])
