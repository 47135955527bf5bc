"""Egress policy of one sandbox, as a chain and sets in the engine's nftables table.

They exist only for policies that allow a part of the internet. A policy's names are present as
resolved addresses, each with a timeout and the name as its comment, from which the next engine
restores them.
"""

import re
from collections.abc import Collection, Iterator
from ipaddress import IPv4Address
from typing import Any

from sandbox_engine.network.firewall.policy import Policy
from sandbox_engine.network.firewall.resolved_addresses import MOST, ResolvedAddress
from sandbox_engine.network.firewall.ruleset import elements

_PLAIN_NAME = re.compile("[a-z0-9_.-]{1,120}")  # the limit of `nft`

_SIZE = 2 * MOST  # expired elements are counted for a while

_DECLARATION = """
add set inet {table} allowed_{link} {{ type ipv4_addr; flags interval; }}
add set inet {table} denied_{link} {{ type ipv4_addr; flags interval; }}
add set inet {table} opened_{link} {{ type ipv4_addr; size {size}; flags timeout; }}
add chain inet {table} egress_{link}
flush chain inet {table} egress_{link}
add element inet {table} policies {{ "{link}" : goto egress_{link} }}
"""

_RULES = """
flush set inet {table} allowed_{link}
flush set inet {table} denied_{link}
flush set inet {table} opened_{link}
add rule inet {table} egress_{link} ip daddr @allowed_{link} accept
add rule inet {table} egress_{link} ip daddr @opened_{link} accept
add rule inet {table} egress_{link} ip daddr @denied_{link} goto refuse
"""

_REMOVAL = """
delete element inet {table} policies {{ "{link}" }}
delete chain inet {table} egress_{link}
delete set inet {table} allowed_{link}
delete set inet {table} denied_{link}
delete set inet {table} opened_{link}
"""


def set_of_opened(link: str) -> str:
    """Return the name of the set of resolved addresses."""
    return f"opened_{link}"


def comment_on(opening: ResolvedAddress) -> str:
    """Format the name as a comment, unless `nft` cannot read it back."""
    return opening.name if _PLAIN_NAME.fullmatch(opening.name) else ""


def installation(
    table: str, link: str, policy: Policy, *, resolved_addresses: Collection[ResolvedAddress] = ()
) -> str:
    """Build the script that replaces a policy atomically."""
    return (
        (_DECLARATION + _RULES).format(table=table, link=link, size=_SIZE)
        + elements(table, f"allowed_{link}", policy.allow)
        + elements(table, f"denied_{link}", policy.deny)
        + elements(table, set_of_opened(link), [_lasting(one) for one in resolved_addresses])
    )


def removal(table: str, link: str) -> str:
    """Build the script that removes a link's policy, even if incomplete."""
    return (_DECLARATION + _REMOVAL).format(table=table, link=link, size=_SIZE)


def restore_opened(listing: dict[str, Any]) -> dict[str, list[ResolvedAddress]]:
    """Restore the resolved addresses of an earlier engine from a table's listing, by link."""
    sets = [entry["set"] for entry in listing.get("nftables", ()) if "set" in entry]
    return {
        one["name"].removeprefix(set_of_opened("")): list(_resolved_addresses(one.get("elem", ())))
        for one in sets
        if one["name"].startswith(set_of_opened(""))
    }


def _resolved_addresses(members: Collection[Any]) -> Iterator[ResolvedAddress]:
    for entry in members:
        element = entry["elem"]
        if "comment" in element:
            yield ResolvedAddress(
                IPv4Address(element["val"]), element["comment"], element["expires"]
            )


def _lasting(opening: ResolvedAddress) -> str:
    comment = comment_on(opening)
    shown = f' comment "{comment}"' if comment else ""
    return f"{opening.address} timeout {int(opening.ttl)}s{shown}"
