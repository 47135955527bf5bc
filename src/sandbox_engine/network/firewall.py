import asyncio
import json
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network

from sandbox_engine.log import get_logger
from sandbox_engine.network import conntrack, egress, nftables, ruleset
from sandbox_engine.network.dns_answers import addresses
from sandbox_engine.network.links import Link
from sandbox_engine.network.netlink import NETFILTER, Netlink
from sandbox_engine.network.nftables import add, delete, element, find
from sandbox_engine.network.openings import Opening, Openings
from sandbox_engine.network.policy import Policy
from sandbox_engine.runner import Runner

log = get_logger(__name__)

_NAME_BYTES = 16
_JUDGING_CHAINS = ("prerouting", "judge")


@dataclass(frozen=True)
class _Admitted:
    link: Link
    policy: Policy
    openings: Openings


class Firewall:
    """The engine's table, and the links that are in it, each with its sandbox's policy."""

    def __init__(
        self,
        run: Runner,
        *,
        table: str,
        rules: Callable[..., str],
    ) -> None:
        self._run = run
        self._table = table
        self._rules = rules
        self._admitted: dict[str, _Admitted] = {}
        self._left_open: dict[str, list[Opening]] = {}
        self._changing = asyncio.Lock()
        # Kept open: to close one after a deletion waits for the kernel to finish it, some 15 ms.
        # So does whoever changes rules meanwhile, hence the thread.
        self._questions, self._changes = Netlink(NETFILTER), Netlink(NETFILTER)
        self._committer = ThreadPoolExecutor(1, "firewall")

    def close(self) -> None:
        self._committer.shutdown()
        self._questions.close()
        self._changes.close()

    async def recall(self) -> None:
        """Take over what an engine before this one had opened for names' sake."""
        listed = await self._run(["nft", "-j", "list", "table", "inet", self._table])
        if listed.returncode == 0:
            self._left_open = egress.left_open(json.loads(listed.stdout))

    async def install(
        self, *, dns_ports: tuple[int, int], connected: Collection[IPv4Network]
    ) -> None:
        """Make the table, or make it anew, with the links that it had and their policies."""
        self._rules = partial(self._rules, dns_ports=dns_ports, connected=connected)
        async with self._changing:
            await self._rebuild()

    def is_installed(self) -> bool:
        """Tell whether the table judges; whoever flushes the host's rules takes them along."""
        return self._is_there(nftables.find_table(self._table)) and all(
            list(self._questions.dump(nftables.GET_RULE, nftables.rules_of(self._table, chain)))
            for chain in _JUDGING_CHAINS
        )

    async def deny(self, connected: Collection[IPv4Network]) -> None:
        """Keep sandboxes out of the networks that the host is itself part of."""
        self._rules = partial(self._rules, connected=connected)
        await self._load(ruleset.connected_networks(self._table, connected))

    async def remove(self) -> None:
        """Remove the table with all that is in it."""
        self._admitted.clear()
        await self._load(ruleset.absence(self._table))

    async def admit(self, link: Link, policy: Policy) -> None:
        """Let a link's sandbox begin connections to what its policy permits."""
        async with self._changing:
            before = self._admitted.get(link.address)
            openings = before.openings if before else Openings(self._left_open.pop(link.name, ()))
            now = _Admitted(link, policy, openings)
            self._admitted.setdefault(link.address, now)  # what fails half done is still removed
            try:
                await self._enforce(now, before.policy if before else None)
                self._admitted[link.address] = now
            except OSError:
                if self.is_installed():
                    raise
                self._admitted[link.address] = now
                await self._rebuild()

    async def cut(self, link: Link) -> None:
        """End the connections from a link's address that its policy does not permit."""
        one = self._admitted[link.address]
        if not one.policy.is_open:
            await asyncio.to_thread(
                conntrack.cut, IPv4Address(link.address), unless=partial(_spares, one)
            )

    async def forget(self, link: Link) -> None:
        """Let a link's sandbox reach nothing, and keep nothing of it."""
        async with self._changing:
            before = self._admitted.get(link.address)
            changes = [delete(self._place(link))] if before else []
            counted = element(self._table, "connections", IPv4Address(link.address).packed)
            if self._is_there(find(counted)):
                changes.append(delete(counted))
            with suppress(FileNotFoundError):
                await self._commit(*changes)
            try:
                if before and before.policy.is_partial:
                    await self._load(egress.removal(self._table, link.name))
            except OSError:
                if self.is_installed():
                    raise
            self._admitted.pop(link.address, None)

    def admitted(self) -> list[Link]:
        """List the links that are in the table."""
        return [one.link for one in self._admitted.values()]

    def admits_question(self, sandbox: str, name: str) -> bool:
        """Tell whether the sandbox with this address may ask for a name."""
        one = self._admitted.get(sandbox)
        return one is not None and one.policy.admits_question(name)

    async def heed(self, sandbox: str, name: str, answer: bytes) -> None:
        """Open what a name resolves to, before the sandbox that asked for it is told."""
        told = addresses(answer)
        async with self._changing:
            one = self._admitted.get(sandbox)
            if one is None:
                return
            for found in told:
                before = one.openings.find(found.address, one.policy)
                if one.openings.note(name, found.address, found.life) and one.policy.opens(name):
                    await self._open(one, found.address, is_open=before is not None)
                if (surplus := one.openings.drop_surplus()) is not None:
                    await self._shut(one, surplus)

    async def _rebuild(self) -> None:
        admitted = [*self._admitted.values()]
        policies = [self._installation(one) for one in admitted if one.policy.is_partial]
        await self._load(self._rules() + "".join(policies))
        for one in admitted:
            await self._commit(self._leading(one))

    async def _enforce(self, one: _Admitted, before: Policy | None) -> None:
        # In an order in which no packet meets less than the stricter of the two policies.
        if one.policy.is_partial:
            await self._load(self._installation(one))
        if before is None:
            await self._commit(self._leading(one))
        elif before.is_closed != one.policy.is_closed:
            await self._commit(delete(self._place(one.link)), self._leading(one))
        if before is not None and before.is_partial and not one.policy.is_partial:
            await self._load(egress.removal(self._table, one.link.name))

    async def _open(self, one: _Admitted, address: IPv4Address, *, is_open: bool) -> None:
        opening = one.openings.find(address, one.policy)
        assert opening is not None
        if is_open:  # kernels before 6.12 do not lengthen the life of an element that is there
            await self._shut(one, address)
        name = egress.set_of_opened(one.link.name)
        comment = nftables.commented(egress.comment_on(opening))
        lasting = nftables.lasting(opening.life)
        with suppress(FileNotFoundError):  # who flushes the rules has them put back, with this
            await self._commit(add(element(self._table, name, address.packed, lasting, comment)))

    async def _shut(self, one: _Admitted, address: IPv4Address) -> None:
        name = egress.set_of_opened(one.link.name)
        with suppress(FileNotFoundError):
            await self._commit(delete(element(self._table, name, address.packed)))

    def _installation(self, one: _Admitted) -> str:
        openings = one.openings.current(one.policy)
        return egress.installation(self._table, one.link.name, one.policy, openings=openings)

    def _place(self, link: Link, *leads: bytes) -> bytes:
        key = link.name.encode().ljust(_NAME_BYTES, b"\0") + IPv4Address(link.address).packed
        return element(self._table, "links", key, *leads)

    def _leading(self, one: _Admitted) -> bytes:
        chain = "offline" if one.policy.is_closed else "online"
        return add(self._place(one.link, nftables.goto(chain)))

    async def _commit(self, *changes: bytes) -> None:
        commit = partial(self._changes.request, *nftables.transaction(*changes))
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


def _spares(one: _Admitted, destination: IPv4Address) -> bool:
    return one.policy.permits(destination) or bool(one.openings.find(destination, one.policy))
