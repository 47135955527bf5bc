import asyncio
import socket
from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

from sandbox_engine.keeper.client import Keeper, KeeperLost
from sandbox_engine.network import host as host_network
from sandbox_engine.network.conflicts import find_conflicts
from sandbox_engine.network.dns.server import Forwarder, Resolvers
from sandbox_engine.network.firewall.firewall import Firewall
from sandbox_engine.network.firewall.policy import OPEN, Policy
from sandbox_engine.network.firewall.ruleset import ruleset
from sandbox_engine.network.firewall.table import Table
from sandbox_engine.network.kernel.interfaces import ADDRESS_CHANGES, routes
from sandbox_engine.network.kernel.links import Link
from sandbox_engine.network.kernel.netlink import NETFILTER, ROUTE, Watch
from sandbox_engine.network.kernel.nftables import RULE_CHANGES
from sandbox_engine.network.link_allocator import LinkAllocator, existing_links
from sandbox_engine.network.link_setup import LinkSetup
from sandbox_engine.network.naming import link_prefix
from sandbox_engine.network.subnets import Subnet, claim
from sandbox_engine.system.log import get_logger
from sandbox_engine.system.prefilled_pool import PrefilledPool

__all__ = ["Link", "Network"]

log = get_logger(__name__)

_RETRY_SECONDS = 1.0
_BACKLOG = 128


class Network:
    """The sandboxes' network links; a pool of them is prepared in advance."""

    def __init__(
        self,
        keeper: Keeper,
        subnet: Subnet,
        *,
        instance: str,
        places: Path,
        allow: Collection[IPv4Network],
        pool_size: int,
    ) -> None:
        prefix = link_prefix(instance)
        self._run = keeper.run
        self._prefix = prefix
        self._subnet = subnet
        self._places = places
        self._link_allocator = LinkAllocator(prefix, network=subnet.network, places=places)
        self._strays = {
            name: self._link_allocator.keep(name) for name in existing_links(prefix, places)
        }
        group = int(instance, 16) | 1  # group 0 is the default of all interfaces
        self._link_setup = LinkSetup(keeper, gateway=subnet.gateway, group=group)
        table = Table(keeper.run, f"sandbox_engine_{instance}")
        rules = partial(
            ruleset,
            table.name,
            links=f"{prefix}*",
            subnet=subnet.network,
            gateway=subnet.gateway,
            allowed=allow,
        )
        self._firewall = Firewall(table, rules=rules)
        self._pool = PrefilledPool(self._make, self.release, pool_size)
        self._changed = asyncio.Event()
        self._connected: set[IPv4Network] = set()
        self._mtu = 0
        self._dns_ports = (0, 0)
        self._git_listener: socket.socket
        self._opened = AsyncExitStack()
        self._opened.callback(subnet.release)
        self._opened.callback(self._link_setup.close)
        self._opened.callback(table.close)

    @classmethod
    async def open(
        cls,
        *,
        instance: str,
        run_dir: Path,
        state_dir: Path,
        keeper: Keeper,
        pool_size: int,
        subnet_pool: IPv4Network,
        allow: Collection[IPv4Network] = (),
        resolver_configuration: Path = Path("/etc/resolv.conf"),
    ) -> "Network":
        """Claim a subnet, install the firewall and start DNS."""
        places = run_dir / "netns"
        places.mkdir(parents=True, exist_ok=True, mode=0o700)
        subnet = claim(
            subnet_pool,
            memory=state_dir / "subnet",
            routes=routes(),
            in_use=bool(existing_links(link_prefix(instance), places)),
        )
        network = cls(
            keeper, subnet, instance=instance, places=places, allow=allow, pool_size=pool_size
        )
        try:
            await network._start(Resolvers(resolver_configuration))
        except BaseException:
            await network.close()
            raise
        return network

    @property
    def dns_address(self) -> str:
        """Address of the sandboxes' DNS server."""
        return str(self._subnet.gateway)

    @property
    def git_listener(self) -> socket.socket:
        """Socket to which the firewall leads what sandboxes send to port 80 of that address."""
        return self._git_listener

    async def acquire(self, policy: Policy = OPEN) -> Link:
        """Return a link that is ready for use."""
        link = await self._pool.take()
        try:
            if not policy.is_open:
                await self._firewall.admit(link, policy)
            if policy.is_partial:  # connections of an earlier user
                await self._firewall.cut(link)
        except BaseException:
            await self.release(link)
            raise
        return link

    async def release(self, link: Link) -> None:
        """Remove a link with its firewall entries."""
        self._strays.pop(link.name, None)
        await self._firewall.forget(link)
        await self._link_setup.remove(link)
        self._link_allocator.free(link)

    async def restore(self, link: Link, policy: Policy = OPEN) -> None:
        """Restore a link that a sandbox received from an earlier engine."""
        self._strays.pop(link.name, None)
        self._link_allocator.keep(link.name)
        await self._firewall.admit(link, policy)

    async def apply_network_policy(self, link: Link, policy: Policy) -> None:
        """Replace the policy of a link and cut connections it denies."""
        await self._firewall.admit(link, policy)
        await self._firewall.cut(link)

    async def sweep(self, keep: Iterable[Link]) -> set[str]:
        """Remove links of earlier engines, except those to keep.

        Returns kept names that do not exist: the link allocator will reuse them.
        """
        gone = {link.name for link in keep if self._strays.pop(link.name, None) is None}
        strays, self._strays = self._strays, {}
        await self._link_setup.remove(*strays.values())
        for stray in strays.values():
            self._link_allocator.free(stray)
        return gone

    async def conflicts(self) -> list[str]:
        """Find other firewall rules of the host that drop sandboxes' packets."""
        return await find_conflicts(self._run, links=self._prefix)

    @property
    def has_links(self) -> bool:
        """Whether any link exists: in use, prepared, or left by an earlier engine."""
        return bool(self._strays or self._firewall.admitted())

    async def drain(self) -> None:
        """Remove prepared links and stop preparing."""
        await self._pool.close()

    async def close(self) -> None:
        """Stop; links in use keep working, except for DNS."""
        await self.drain()
        await self._opened.aclose()

    async def destroy(self) -> None:
        """Stop and remove everything."""
        await self.drain()
        await self._link_setup.remove(*self._strays.values(), *self._firewall.admitted())
        await self.close()
        await self._firewall.remove()
        host_network.remove_address(self._subnet.gateway)
        self._subnet.forget()
        self._places.rmdir()

    async def _start(self, resolvers: Resolvers) -> None:
        host_network.enable_forwarding()
        host_network.add_address(self._subnet.gateway)
        forwarder = Forwarder(resolvers, self._firewall)
        self._dns_ports = await forwarder.listen(self.dns_address)
        self._git_listener = socket.create_server((self.dns_address, 0), backlog=_BACKLOG)
        self._opened.callback(self._git_listener.close)
        self._opened.push_async_callback(forwarder.close)
        await self._firewall.recall()
        await self._repair_firewall(anew=True)
        upkeep = asyncio.create_task(self._watch_rules())
        self._opened.callback(upkeep.cancel)
        self._opened.callback(Watch(ROUTE, ADDRESS_CHANGES, self._changed.set).close)
        self._opened.callback(Watch(NETFILTER, RULE_CHANGES, self._on_rules_changed).close)
        self._pool.refill()

    async def _make(self) -> Link:
        link = self._link_allocator.take()
        try:
            await self._link_setup.make(link, mtu=self._mtu)
            await self._firewall.admit(link, OPEN)
        except Exception:
            await self.release(link)
            raise
        return link

    def _on_rules_changed(self) -> None:
        if not self._firewall.is_installed():  # most changes are the engine's own
            self._changed.set()

    async def _watch_rules(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._repair_firewall()
            except (OSError, KeeperLost) as error:
                log.error("firewall repair failed", error=error, retry_s=_RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)
                self._changed.set()

    async def _repair_firewall(self, *, anew: bool = False) -> None:
        """Adapt the firewall to the current state of the host."""
        connected = host_network.own_networks()
        self._mtu = host_network.mtu()
        if anew or not self._firewall.is_installed():
            await self._firewall.install(
                dns_ports=self._dns_ports,
                git_port=self._git_listener.getsockname()[1],
                connected=connected,
            )
        elif connected != self._connected:
            await self._firewall.deny(connected)
        self._connected = connected
