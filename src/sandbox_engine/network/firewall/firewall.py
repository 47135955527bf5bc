import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network

from sandbox_engine.network.dns.answers import addresses
from sandbox_engine.network.firewall import egress, ruleset
from sandbox_engine.network.firewall.policy import Policy
from sandbox_engine.network.firewall.resolved_addresses import ResolvedAddress, ResolvedAddresses
from sandbox_engine.network.firewall.table import Table
from sandbox_engine.network.kernel import conntrack, nftables
from sandbox_engine.network.kernel.links import Link
from sandbox_engine.network.kernel.nftables import add, delete

_NAME_BYTES = 16
_JUDGING_CHAINS = ("prerouting", "judge")


@dataclass(frozen=True)
class _Admitted:
    link: Link
    policy: Policy
    resolved_addresses: ResolvedAddresses


class Firewall:
    """The engine's nftables table, with the links and policies of its sandboxes."""

    def __init__(self, table: Table, *, rules: Callable[..., str]) -> None:
        self._table = table
        self._rules = rules
        self._admitted: dict[str, _Admitted] = {}
        self._left_open: dict[str, list[ResolvedAddress]] = {}
        self._changing = asyncio.Lock()

    async def recall(self) -> None:
        """Restore resolved addresses opened by an earlier engine."""
        self._left_open = egress.restore_opened(await self._table.listing())

    async def install(
        self, *, dns_ports: tuple[int, int], git_port: int, connected: Collection[IPv4Network]
    ) -> None:
        """Create or recreate the table, with its links and their policies."""
        self._rules = partial(
            self._rules, dns_ports=dns_ports, git_port=git_port, connected=connected
        )
        async with self._changing:
            await self._rebuild()

    def is_installed(self) -> bool:
        """Return whether the table is in force; flushing the host's rules removes it."""
        return self._table.has_rules(*_JUDGING_CHAINS)

    async def deny(self, connected: Collection[IPv4Network]) -> None:
        """Deny sandboxes the networks that the host is connected to."""
        self._rules = partial(self._rules, connected=connected)
        await self._table.load(ruleset.connected_networks(self._table.name, connected))

    async def remove(self) -> None:
        """Delete the table."""
        self._admitted.clear()
        await self._table.load(ruleset.absence(self._table.name))

    async def admit(self, link: Link, policy: Policy) -> None:
        """Admit a link; its sandbox may open connections that its policy allows."""
        async with self._changing:
            before = self._admitted.get(link.address)
            resolved_addresses = (
                before.resolved_addresses
                if before
                else ResolvedAddresses(self._left_open.pop(link.name, ()))
            )
            now = _Admitted(link, policy, resolved_addresses)
            self._admitted.setdefault(link.address, now)  # undone even if half installed
            try:
                await self._enforce(now, before.policy if before else None)
                self._admitted[link.address] = now
            except OSError:
                if self.is_installed():
                    raise
                self._admitted[link.address] = now
                await self._rebuild()

    async def cut(self, link: Link) -> None:
        """Cut connections of a link that its policy does not allow."""
        one = self._admitted[link.address]
        if not one.policy.is_open:
            await asyncio.to_thread(
                conntrack.cut, IPv4Address(link.address), unless=partial(_spared_destinations, one)
            )

    async def forget(self, link: Link) -> None:
        """Remove a link; its sandbox can reach nothing."""
        async with self._changing:
            before = self._admitted.get(link.address)
            changes = [delete(self._place(link))] if before else []
            counted = self._table.element("connections", IPv4Address(link.address).packed)
            if self._table.has(counted):
                changes.append(delete(counted))
            with suppress(FileNotFoundError):
                await self._table.commit(*changes)
            try:
                if before and before.policy.is_partial:
                    await self._table.load(egress.removal(self._table.name, link.name))
            except OSError:
                if self.is_installed():
                    raise
            self._admitted.pop(link.address, None)

    def admitted(self) -> list[Link]:
        """List the links in the table."""
        return [admission.link for admission in self._admitted.values()]

    def may_resolve(self, sandbox: str, name: str) -> bool:
        """Return whether the sandbox with this address may resolve a name."""
        one = self._admitted.get(sandbox)
        return one is not None and one.policy.may_resolve(name)

    async def note_answer(self, sandbox: str, name: str, answer: bytes) -> None:
        """Open a name's addresses before the sandbox receives the answer."""
        answered = addresses(answer)
        async with self._changing:
            one = self._admitted.get(sandbox)
            if one is None:
                return
            for found in answered:
                before = one.resolved_addresses.find(found.address, one.policy)
                holds_longer = one.resolved_addresses.note(name, found.address, found.ttl)
                if (surplus := one.resolved_addresses.drop_surplus()) is not None:
                    await self._shut(one, surplus)
                if holds_longer and one.policy.opens(name):
                    await self._open(one, found.address, was_open=before is not None)

    async def _rebuild(self) -> None:
        admitted = [*self._admitted.values()]
        policies = [self._installation(one) for one in admitted if one.policy.is_partial]
        await self._table.load(self._rules() + "".join(policies))
        for one in admitted:
            await self._table.commit(self._leading(one))

    async def _enforce(self, one: _Admitted, before: Policy | None) -> None:
        # In an order in which no packet passes that both policies deny.
        if one.policy.is_partial:
            await self._table.load(self._installation(one))
        if before is None:
            await self._table.commit(self._leading(one))
        elif before.is_closed != one.policy.is_closed:
            await self._table.commit(delete(self._place(one.link)), self._leading(one))
        if before is not None and before.is_partial and not one.policy.is_partial:
            await self._table.load(egress.removal(self._table.name, one.link.name))

    async def _open(self, one: _Admitted, address: IPv4Address, *, was_open: bool) -> None:
        opening = one.resolved_addresses.find(address, one.policy)
        assert opening is not None
        place = partial(self._table.element, egress.set_of_opened(one.link.name), address.packed)
        comment = nftables.commented(egress.comment_on(opening))
        opened = add(place(nftables.lasting(opening.ttl), comment))
        # Kernels before 6.12 do not extend the timeout of an existing element.
        renewed = [delete(place())] if was_open else []
        try:
            await self._table.commit(*renewed, opened)
        except FileNotFoundError:  # expired
            with suppress(FileNotFoundError):  # flushed; rebuilt with this address
                await self._table.commit(opened)

    async def _shut(self, one: _Admitted, address: IPv4Address) -> None:
        name = egress.set_of_opened(one.link.name)
        with suppress(FileNotFoundError):
            await self._table.commit(delete(self._table.element(name, address.packed)))

    def _installation(self, one: _Admitted) -> str:
        resolved_addresses = one.resolved_addresses.current(one.policy)
        return egress.installation(
            self._table.name, one.link.name, one.policy, resolved_addresses=resolved_addresses
        )

    def _place(self, link: Link, *leads: bytes) -> bytes:
        key = link.name.encode().ljust(_NAME_BYTES, b"\0") + IPv4Address(link.address).packed
        return self._table.element("links", key, *leads)

    def _leading(self, one: _Admitted) -> bytes:
        chain = "offline" if one.policy.is_closed else "online"
        return add(self._place(one.link, nftables.goto(chain)))


def _spared_destinations(one: _Admitted, destination: IPv4Address) -> bool:
    return one.policy.permits(destination) or bool(
        one.resolved_addresses.find(destination, one.policy)
    )
