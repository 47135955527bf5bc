import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

_SANDBOX_ID = re.compile(r"[a-z0-9]+")
_MAX_PORT = 65_535

# Port of E2B's in-sandbox daemon; the engine serves it.
ENVD_PORT = 49983

# Names below `localhost` need no DNS, so sandboxes are reachable there with any domain.
_LOCAL_DOMAIN = "localhost"


class BadRoute(Exception):
    """The host or headers do not name a valid sandbox or port (400)."""


@dataclass(frozen=True)
class ControlApi:
    """The request is for the engine's API."""


@dataclass(frozen=True)
class SandboxTraffic:
    """The request is for a port of a sandbox."""

    sandbox_id: str
    port: int
    by_headers: bool = False
    """Whether headers named the target, as proxies in front of a shared address do."""


def route(headers: Iterable[tuple[bytes, bytes]], *, domain: str) -> ControlApi | SandboxTraffic:
    """Route a request by its headers.

    A host below the domain takes precedence, so that a page of one sandbox cannot reach another by
    a header; on other hosts the E2b-Sandbox headers decide.
    """
    host = sandbox_id = port = None
    for name, value in headers:
        if name == b"host":
            if host is not None:
                raise BadRoute("Invalid host")
            host = _host_name(value)
        elif name == b"e2b-sandbox-id":
            sandbox_id = value.decode("latin-1")
        elif name == b"e2b-sandbox-port":
            port = value.decode("latin-1")

    label = _label_below((_host_name(domain.encode()), _LOCAL_DOMAIN), host or "")
    if label == "api":
        return ControlApi()
    if label is not None and label != "sandbox":
        return _by_label(label)
    if sandbox_id is None and port is None and label is None:
        return ControlApi()
    if sandbox_id is None or port is None:
        raise BadRoute("missing header")
    return replace(_traffic(sandbox_id, port), by_headers=True)


def _host_name(value: bytes) -> str:
    host = value.decode("latin-1").strip().lower()
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).removesuffix(".")


def _label_below(domains: Iterable[str], host: str) -> str | None:
    for domain in domains:
        label = host.removesuffix(f".{domain}")
        if label != host and "." not in label:
            return label
    return None


def _by_label(label: str) -> SandboxTraffic:
    port, dash, rest = label.partition("-")
    if not dash:
        raise BadRoute("Invalid host")
    return _traffic(rest.partition("-")[0], port)


def _traffic(sandbox_id: str, port: str) -> SandboxTraffic:
    if not (port.isascii() and port.isdigit() and len(port) <= len(str(_MAX_PORT))):
        raise BadRoute("Invalid sandbox port")
    if not 0 < int(port) <= _MAX_PORT:
        raise BadRoute("Invalid sandbox port")
    if not _SANDBOX_ID.fullmatch(sandbox_id):
        raise BadRoute("Invalid sandbox ID")
    return SandboxTraffic(sandbox_id, int(port))
