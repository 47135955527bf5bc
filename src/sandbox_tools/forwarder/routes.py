"""Which way the browser's traffic to a host takes: pure rules."""

import base64
import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
_MOST_UPSTREAMS = 100
_MOST_HOSTS = 1000
_MOST_ALLOWED = 1000
_ALLOWED = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?")


class InvalidConfig(ValueError):
    """The configuration cannot be used; the message says why."""


@dataclass(frozen=True)
class Address:
    """Where a connection is opened."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Upstream:
    """A proxy, or the direct way where `server` is None, for the hosts that match."""

    server: Address | None
    is_tls: bool = False
    authorization: str | None = field(default=None, repr=False)
    matches: re.Pattern[str] | None = None

    def covers(self, host: str) -> bool:
        return self.matches is None or self.matches.search(host) is not None


DIRECT = Upstream(None)


@dataclass(frozen=True)
class Routes:
    """The upstreams in the order of their rules, addresses of host names, and the domains that may be reached at all."""

    upstreams: Sequence[Upstream] = ()
    hosts: Mapping[str, str] = field(default_factory=dict)
    allowed_domains: frozenset[str] | None = None

    def permits(self, host: str) -> bool:
        """Whether a host may be reached: a domain stands for its subdomains too, `*.domain` for these alone."""
        if self.allowed_domains is None:
            return True
        name = host.lower().rstrip(".")
        if name in self.allowed_domains:
            return True
        labels = name.split(".")
        parents = (".".join(labels[n:]) for n in range(1, len(labels)))
        return any(
            each in self.allowed_domains or f"*.{each}" in self.allowed_domains for each in parents
        )

    def find(self, host: str) -> Upstream | None:
        """Find the upstream of a host; None if no rule covers it, which is never the direct way."""
        if not self.upstreams or host.lower() in self.hosts:
            return DIRECT
        return next((each for each in self.upstreams if each.covers(host.lower())), None)

    def resolve(self, address: Address) -> Address:
        """Replace a host by its address in the host map, which may have a port."""
        mapped = self.hosts.get(address.host.lower())
        return address if mapped is None else parse_address(mapped, default_port=address.port)


def parse_routes(document: Any) -> Routes:
    """Read the configuration, or raise `InvalidConfig`."""
    if not isinstance(document, dict):
        raise InvalidConfig("The configuration must be an object.")
    upstreams, hosts = document.get("upstreams", []), document.get("hosts", {})
    if not isinstance(upstreams, list) or len(upstreams) > _MOST_UPSTREAMS:
        raise InvalidConfig(f"`upstreams` must be a list of at most {_MOST_UPSTREAMS} entries.")
    if not isinstance(hosts, dict) or len(hosts) > _MOST_HOSTS:
        raise InvalidConfig(f"`hosts` must be an object of at most {_MOST_HOSTS} entries.")
    for name, address in hosts.items():
        if not isinstance(address, str):
            raise InvalidConfig(f"The address of the host {name!r} must be a string.")
        parse_address(address, default_port=80)
    return Routes(
        tuple(_parse_upstream(each) for each in upstreams),
        {name.lower(): address for name, address in hosts.items()},
        _parse_allowed(document.get("allowed_domains")),
    )


def _parse_allowed(domains: Any) -> frozenset[str] | None:
    if domains is None:
        return None
    if not isinstance(domains, list) or len(domains) > _MOST_ALLOWED:
        raise InvalidConfig(f"`allowed_domains` must be a list of at most {_MOST_ALLOWED} entries.")
    names = [each.lower().rstrip(".") if isinstance(each, str) else each for each in domains]
    for name in names:
        if not isinstance(name, str) or not _ALLOWED.fullmatch(name):
            raise InvalidConfig(f"{name!r} is no domain: use example.com or *.example.com.")
    return frozenset(names)


def _parse_upstream(entry: Any) -> Upstream:
    if not isinstance(entry, dict):
        raise InvalidConfig("Each upstream must be an object.")
    matches = _parse_pattern(entry.get("domain_pattern"))
    match entry.get("type"):
        case "none":
            return Upstream(None, matches=matches)
        case "external":
            return _parse_proxy(entry, matches)
        case other:
            raise InvalidConfig(f"Unknown type of upstream: {other!r}. Use `external` or `none`.")


def _parse_proxy(entry: Mapping[str, Any], matches: re.Pattern[str] | None) -> Upstream:
    server = entry.get("server")
    if not isinstance(server, str):
        raise InvalidConfig("An external upstream needs a `server`.")
    url = urlsplit(server if "://" in server else f"http://{server}")
    if url.scheme not in _DEFAULT_PORTS:
        raise InvalidConfig(f"The proxy {url.scheme}://… is not supported: use http or https.")
    try:
        port = url.port or _DEFAULT_PORTS[url.scheme]
    except ValueError:
        raise InvalidConfig(f"The port of the proxy {url.hostname!r} is invalid.") from None
    if not url.hostname:
        raise InvalidConfig(f"The proxy {server!r} has no host.")
    user = entry.get("username") or url.username
    password = entry.get("password") or url.password or ""
    return Upstream(
        Address(url.hostname, port),
        is_tls=url.scheme == "https",
        authorization=None if user is None else _basic(str(user), str(password)),
        matches=matches,
    )


def _parse_pattern(pattern: Any) -> re.Pattern[str] | None:
    """Read a regular expression, or a pattern such as `*.example.com`."""
    if pattern is None or pattern == "":
        return None
    if not isinstance(pattern, str) or len(pattern) > 1000:  # noqa: PLR2004 - a name has at most 253
        raise InvalidConfig("`domain_pattern` must be a string of at most 1000 characters.")
    if pattern.startswith("*"):
        return re.compile(fnmatch.translate(pattern.lower()))
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise InvalidConfig(f"`domain_pattern` is no regular expression: {error}.") from None


def parse_address(text: str, *, default_port: int | None = None) -> Address:
    """Read `host:port`; a host of IPv6 is in brackets if a port follows."""
    matched = re.fullmatch(
        r"\[([0-9A-Fa-f:.]+)\](?::([0-9]{1,5}))?|([^:\[\]/@\s]+)(?::([0-9]{1,5}))?", text
    )
    host = port = None
    if matched is not None:
        host, port = matched[1] or matched[3], matched[2] or matched[4]
    number = int(port) if port else default_port
    if host is None or number is None or not 0 < number < 65_536:  # noqa: PLR2004 - ports
        raise InvalidConfig(f"Invalid address {text!r}: use host:port.")
    return Address(host, number)


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
