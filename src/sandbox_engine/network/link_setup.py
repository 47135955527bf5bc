import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

from sandbox_engine.keeper.client import Keeper
from sandbox_engine.network.kernel import links
from sandbox_engine.network.kernel.links import Link
from sandbox_engine.rootfs.ownership import ID_COUNT, UID_BASE


class LinkSetup:
    """Creates and removes links."""

    def __init__(self, keeper: Keeper, *, gateway: IPv4Address, group: int) -> None:
        self._keeper = keeper
        self._gateway = gateway
        self._group = group
        self._visitor = ThreadPoolExecutor(1, "netns-link")
        self._removing = asyncio.Lock()
        self._doomed: list[Link] = []

    def close(self) -> None:
        self._visitor.shutdown()

    async def make(self, link: Link, *, mtu: int) -> None:
        """Create the link's namespaces and connect them to the host."""
        links.make_places(link)
        user, net = Path(link.userns), Path(link.netns)
        await self._keeper.make_namespaces(user, net, first_id=UID_BASE, ids=ID_COUNT)
        connect = partial(links.connect, link, gateway=self._gateway, mtu=mtu)
        await asyncio.get_running_loop().run_in_executor(self._visitor, connect)

    async def remove(self, *unwanted: Link) -> None:
        """Remove links, batched with concurrent removals."""
        self._doomed += unwanted
        async with self._removing:
            batch, self._doomed = self._doomed, []
            if not batch:
                return
            try:
                # The kernel waits some 25 ms for readers, regardless of the number of interfaces.
                await asyncio.to_thread(links.remove, batch, group=self._group)
            except OSError:
                self._doomed += batch
                raise
