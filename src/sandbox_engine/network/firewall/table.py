import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from sandbox_engine.network.kernel import nftables
from sandbox_engine.network.kernel.netlink import NETFILTER, Netlink
from sandbox_engine.system.subprocesses import Runner


class Table:
    """One nftables table: changed by scripts, or by element where it must be fast."""

    def __init__(self, run: Runner, name: str) -> None:
        self.name = name
        self._run = run
        # Kept open: closing a socket after a deletion waits some 15 ms for the kernel. Other
        # changes wait too, hence the thread.
        self._questions, self._changes = Netlink(NETFILTER), Netlink(NETFILTER)
        self._committer = ThreadPoolExecutor(1, "firewall")

    def close(self) -> None:
        self._committer.shutdown()
        self._questions.close()
        self._changes.close()

    async def load(self, script: str) -> None:
        """Apply a script atomically."""
        completed = await self._run(["nft", "-f", "-"], stdin=script.encode())
        if completed.returncode != 0:
            raise OSError(f"nft: {completed.stderr.decode(errors='replace').strip()}")

    async def commit(self, *changes: bytes) -> None:
        """Apply changes of elements atomically."""
        commit = partial(self._changes.request, *nftables.transaction(*changes))
        await asyncio.get_running_loop().run_in_executor(self._committer, commit)

    def element(self, of: str, key: bytes, *parts: bytes) -> bytes:
        """Build an element of one of the table's sets or maps."""
        return nftables.element(self.name, of, key, *parts)

    def has(self, element: bytes) -> bool:
        """Return whether an element exists."""
        return self._is_there(nftables.find(element))

    def has_rules(self, *chains: str) -> bool:
        """Return whether the table exists with rules in each chain."""
        return self._is_there(nftables.find_table(self.name)) and all(
            list(self._questions.dump(nftables.GET_RULE, nftables.rules_of(self.name, chain)))
            for chain in chains
        )

    async def listing(self) -> dict[str, Any]:
        """List the table; empty if it does not exist."""
        listed = await self._run(["nft", "-j", "list", "table", "inet", self.name])
        found: dict[str, Any] = json.loads(listed.stdout) if listed.returncode == 0 else {}
        return found

    def _is_there(self, question: bytes) -> bool:
        try:
            self._questions.request(question)
        except FileNotFoundError:
            return False
        return True
