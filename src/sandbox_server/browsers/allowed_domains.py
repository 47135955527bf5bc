"""The domains that the browser of a session may reach, enforced outside the browser.

The forwarder refuses other domains with a page. The sandbox's egress rules refuse what passes it by: a browser context with
a proxy of its own, an extension, a program in the sandbox.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from sandbox_server.domain.errors import InvalidRequest

_DOMAIN = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?")
_IPV4 = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_EVERYTHING = "0.0.0.0/0"


def read_domains(names: Iterable[str]) -> tuple[str, ...]:
    """Normalize domains; raises if one is none. `example.com` includes its subdomains, `*.example.com` is these alone."""
    domains = tuple(name.strip().lower().rstrip(".") for name in names)
    for domain in domains:
        if _DOMAIN.fullmatch(domain) is None:
            raise InvalidRequest(
                f"{domain[:100]!r} is not a domain. Use names such as example.com or *.example.com."
            )
    return domains


def egress_rules(
    domains: Sequence[str], proxies: Iterable[Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Build the network settings of the sandbox: the domains and the session's proxies, nothing else."""
    if not domains:
        return {}
    allowed = [*domains, *(f"*.{name}" for name in domains if _has_subdomains(name))]
    servers = (each.get("server") for each in proxies)
    hosts = (urlsplit(each if "://" in each else f"//{each}").hostname for each in servers if each)
    allowed += [host for host in hosts if host is not None]
    return {"allow_out": list(dict.fromkeys(allowed)), "deny_out": [_EVERYTHING]}


def forwarder_config(proxies: bytes | None, domains: Sequence[str]) -> bytes:
    """Build the configuration of the forwarder from the stored one of the session's proxies."""
    config: dict[str, Any] = {} if proxies is None else json.loads(proxies)
    if domains:
        config["allowed_domains"] = list(domains)
    return json.dumps(config).encode()


def _has_subdomains(name: str) -> bool:
    return not name.startswith("*.") and _IPV4.fullmatch(name) is None
