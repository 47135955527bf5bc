import fcntl
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from sandbox_engine.network.kernel.interfaces import LOOPBACK, Route
from sandbox_engine.system.errors import CannotRun

_PREFIX = 18  # 16,382 addresses
_LOCKS = Path("/run/sandbox-engine/subnets")  # shared by all engines of the machine


@dataclass(frozen=True)
class Subnet:
    """An address range owned by one engine while it holds the lock."""

    network: IPv4Network
    lock: int
    memory: Path

    @property
    def gateway(self) -> IPv4Address:
        return _gateway(self.network)

    def release(self) -> None:
        """Release the range; the engine of this state directory keeps its preference for it."""
        os.close(self.lock)

    def forget(self) -> None:
        """Forget the preferred range of this state directory."""
        self.memory.unlink(missing_ok=True)


def claim(
    pool: IPv4Network,
    *,
    memory: Path,
    routes: Collection[Route],
    in_use: bool,
) -> Subnet:
    """Claim the preferred range in `memory`, or a free one without routes on the host.

    A range `in_use` by sandboxes of an earlier engine must be claimed; raises otherwise.
    """
    _LOCKS.mkdir(parents=True, exist_ok=True)
    for network in _candidates(pool, _find_cached(memory), routes, in_use=in_use):
        lock = os.open(_LOCKS / f"{network.network_address}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        _remember(memory, network)
        return Subnet(network, lock, memory)
    raise CannotRun(
        f"No range of {pool} is free for sandboxes: other engines hold them, or the host has "
        "routes into all of them. Choose another subnet pool."
    )


def _candidates(
    pool: IPv4Network, remembered: IPv4Network | None, routes: Collection[Route], *, in_use: bool
) -> Iterator[IPv4Network]:
    left_behind = None
    if remembered is not None:
        if in_use:
            yield remembered
            return
        left_behind = IPv4Network(_gateway(remembered))
    routed = [
        route.to
        for route in routes
        if route.to.prefixlen > 0 and not (route.device == LOOPBACK and route.to == left_behind)
    ]
    ranges = list(pool.subnets(new_prefix=max(_PREFIX, pool.prefixlen)))
    touched = _indices(ranges, routed)
    # A route to all of 10.0.0.0/8, common with VPNs, is overridden for the few addresses of
    # sandboxes; a route into the range would override theirs.
    entered = _indices(ranges, [to for to in routed if to.prefixlen >= ranges[0].prefixlen])
    free = [index for index in range(len(ranges)) if index not in entered]
    free.sort(key=lambda index: (index in touched, ranges[index] != remembered))
    yield from (ranges[index] for index in free)


def _indices(ranges: list[IPv4Network], networks: Collection[IPv4Network]) -> set[int]:
    """List the equal, adjacent ranges that overlap with a network."""
    start, size = int(ranges[0].network_address), ranges[0].num_addresses
    found: set[int] = set()
    for network in networks:
        first = (int(network.network_address) - start) // size
        last = (int(network.broadcast_address) - start) // size
        found.update(range(max(first, 0), min(last, len(ranges) - 1) + 1))
    return found


def _gateway(network: IPv4Network) -> IPv4Address:
    return network[1]


def _find_cached(memory: Path) -> IPv4Network | None:
    try:
        return IPv4Network(memory.read_text().strip())
    except (FileNotFoundError, ValueError):
        return None


def _remember(memory: Path, network: IPv4Network) -> None:
    fresh = memory.with_suffix(".new")
    fresh.write_text(f"{network}\n")
    fresh.replace(memory)
