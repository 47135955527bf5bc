import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox_engine.system.subprocesses import Runner

_LEGACY_TABLES = Path("/proc/net/ip_tables_names")
_HOOKS = {"forward": "reach nothing outside", "input": "cannot resolve names"}
_LEGACY_CHAINS = {"FORWARD": "forward", "INPUT": "input"}


async def find_conflicts(run: Runner, *, links: str) -> list[str]:
    """List other firewall rules on the host that drop the links' packets, with the fix.

    A packet has to pass every table: Docker's or a firewall's may drop what ours accepts.
    """
    listed = await run(["nft", "-j", "list", "chains"])
    if listed.returncode != 0:
        return []
    found = []
    for chain in _dropping_chains(json.loads(listed.stdout)):
        family, table = chain["family"], chain["table"]
        rules = await run(["nft", "list", "table", family, table])
        if links.encode() not in rules.stdout:
            name = f"{family} {table} {chain['name']}"
            fixes = [f"nft insert rule {name} {rule}" for rule in _passes(chain["hook"], links)]
            found.append(_conflict(f"the nftables chain {name}", chain["hook"], fixes))
    return found + await _legacy_conflicts(run, links=links)


async def _legacy_conflicts(run: Runner, *, links: str) -> list[str]:
    if not _LEGACY_TABLES.exists() or "filter" not in _LEGACY_TABLES.read_text().split():
        return []
    listed = await run(["iptables-legacy", "-S"])
    if links.encode() in listed.stdout:
        return []
    return [
        _conflict(
            f"the iptables chain {chain}",
            hook,
            [
                f"iptables-legacy -I {chain} -{direction} {links}+ -j ACCEPT"
                for direction in ("i" if hook == "input" else "io")
            ],
        )
        for chain, hook in _LEGACY_CHAINS.items()
        if f"-P {chain} DROP".encode() in listed.stdout
    ]


def _dropping_chains(listing: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for entry in listing["nftables"]:
        chain = entry.get("chain", {})
        ipv4 = chain.get("family") in ("ip", "inet")
        if ipv4 and chain.get("hook") in _HOOKS and chain.get("policy") == "drop":
            yield chain


def _passes(hook: str, links: str) -> list[str]:
    ends = ["iifname"] if hook == "input" else ["iifname", "oifname"]
    return [f"{end} '\"{links}*\"' accept" for end in ends]


def _conflict(chain: str, hook: str, fixes: list[str]) -> str:
    why = f"Sandboxes {_HOOKS[hook]}: {chain} drops packets by default."
    return f"{why} Let them pass: {'; '.join(fixes)}"
