"""Policies for a name beyond the host, and sandboxes that ask for names."""

import os

from sandbox_engine.network.firewall.policy import Policy
from sandbox_engine.network.kernel.links import Link
from sandbox_engine.network.network import Network
from tests.engine.dns_resolvers import ask, question

NAME = "api.example.com"
STUB = f"127.53.{os.getpid() % 250 + 1}.3"  # the host's resolver, for as long as a test runs one


def only(*allowed: str) -> Policy:
    return Policy.parse(allow_out=allowed, deny_out=["0.0.0.0/0"])


async def learns(network: Network, link: Link, name: str = NAME) -> bytes:
    """Have the sandbox ask for a name; gives the answer."""
    return await ask(link.netns, network.dns_address, question(name))
