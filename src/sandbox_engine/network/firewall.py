import asyncio
import struct
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Network

from sandbox_engine.network import ruleset
from sandbox_engine.network.links import Link
from sandbox_engine.network.netlink import (
    ACK,
    CREATE,
    NETFILTER,
    Netlink,
    attribute,
    message,
    nested,
    text,
)
from sandbox_engine.runner import Runner

RULE_CHANGES = 0x40

_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NFTABLES = 10
_GET_TABLE, _NEW_ELEMENT, _GET_ELEMENT, _DELETE_ELEMENT = (
    _NFTABLES << 8 | kind for kind in (1, 12, 13, 14)
)
_TABLE, _SET, _ELEMENTS, _ITEM = 1, 2, 3, 1
_KEY, _DATA, _VALUE, _VERDICT, _CODE, _CHAIN = 1, 2, 1, 2, 1, 2
_GOTO = struct.pack("!i", -4)
_NAME_BYTES = 16

_HEAD = struct.Struct("!BBH")  # family, version, subsystem
_OF_BATCH = _HEAD.pack(0, 0, _NFTABLES)
_OF_INET = _HEAD.pack(1, 0, 0)


class Firewall:
    """The engine's table, and the links that are in it."""

    def __init__(
        self,
        run: Runner,
        *,
        table: str,
        links: str,
        subnet: IPv4Network,
        gateway: IPv4Address,
        allowed: Collection[IPv4Network],
    ) -> None:
        self._run = run
        self._table = table
        self._links = links
        self._subnet = subnet
        self._gateway = gateway
        self._allowed = allowed
        self._admitted: dict[str, tuple[Link, bool]] = {}
        # Kept open: to close one after a deletion waits for the kernel to finish it, some 15 ms.
        # So does whoever changes rules meanwhile, hence the thread.
        self._questions, self._changes = Netlink(NETFILTER), Netlink(NETFILTER)
        self._committer = ThreadPoolExecutor(1, "firewall")

    def close(self) -> None:
        self._committer.shutdown()
        self._questions.close()
        self._changes.close()

    async def install(
        self, *, dns_ports: tuple[int, int], connected: Collection[IPv4Network]
    ) -> None:
        """Make the table, or make it anew, with the links that it had."""
        await self._load(
            ruleset.ruleset(
                self._table,
                links=self._links,
                subnet=self._subnet,
                gateway=self._gateway,
                dns_ports=dns_ports,
                allowed=self._allowed,
                connected=connected,
            )
        )
        for link, internet in [*self._admitted.values()]:
            await self.admit(link, internet=internet)

    def is_installed(self) -> bool:
        """Tell whether the table is there; whoever flushes the host's rules takes it along."""
        return self._is_there(message(_GET_TABLE, _OF_INET, text(_TABLE, self._table)))

    async def deny(self, connected: Collection[IPv4Network]) -> None:
        """Keep sandboxes out of the networks that the host is itself part of."""
        await self._load(ruleset.connected_networks(self._table, connected))

    async def remove(self) -> None:
        """Remove the table with all that is in it."""
        self._admitted.clear()
        await self._load(ruleset.absence(self._table))

    async def admit(self, link: Link, *, internet: bool) -> None:
        """Let a link's sandbox use the internet, or be told at once that it may not."""
        changes = [self._link_element(_NEW_ELEMENT, link, internet=internet)]
        _, before = self._admitted.get(link.address, (link, internet))
        if before != internet:
            changes.insert(0, self._link_element(_DELETE_ELEMENT, link))
        self._admitted[link.address] = (link, internet)
        await self._commit(*changes)

    async def forget(self, link: Link) -> None:
        """Let a link's sandbox reach nothing, and keep nothing of it."""
        changes = []
        if self._admitted.pop(link.address, None):
            changes.append(self._link_element(_DELETE_ELEMENT, link))
        counted = self._element("connections", IPv4Address(link.address).packed)
        if self._is_there(message(_GET_ELEMENT, counted)):
            changes.append(message(_DELETE_ELEMENT, counted))
        with suppress(FileNotFoundError):
            await self._commit(*changes)

    def admitted(self) -> list[Link]:
        """List the links that are in the table."""
        return [link for link, _ in self._admitted.values()]

    def has_internet(self, address: str) -> bool:
        """Tell whether the sandbox with this address may use the internet."""
        return address in self._admitted and self._admitted[address][1]

    def _link_element(self, kind: int, link: Link, *, internet: bool | None = None) -> bytes:
        key = link.name.encode().ljust(_NAME_BYTES, b"\0") + IPv4Address(link.address).packed
        data = b""
        if internet is not None:
            chain = text(_CHAIN, "online" if internet else "offline")
            data = nested(_DATA, nested(_VERDICT, attribute(_CODE, _GOTO), chain))
        return message(kind, self._element("links", key, data), flags=ACK | CREATE)

    def _element(self, name: str, key: bytes, data: bytes = b"") -> bytes:
        item = nested(_ITEM, nested(_KEY, attribute(_VALUE, key)), data)
        return _OF_INET + text(_TABLE, self._table) + text(_SET, name) + nested(_ELEMENTS, item)

    async def _commit(self, *changes: bytes) -> None:
        """Carry out all changes or none."""
        begin, end = (message(kind, _OF_BATCH, flags=0) for kind in (_BATCH_BEGIN, _BATCH_END))
        commit = partial(self._changes.request, begin, *changes, end)
        await asyncio.get_running_loop().run_in_executor(self._committer, commit)

    def _is_there(self, question: bytes) -> bool:
        try:
            self._questions.request(question)
        except FileNotFoundError:
            return False
        return True

    async def _load(self, script: str) -> None:
        completed = await self._run(["nft", "-f", "-"], stdin=script.encode())
        if completed.returncode != 0:
            raise OSError(f"nft: {completed.stderr.decode(errors='replace').strip()}")
