import re

from starlette.datastructures import Headers

from sandbox_server.proxy.targets import PublicAddress

_PATHS = re.compile(
    rb"/v1/sandboxes/[a-z0-9]{20}/(?:ports/[0-9]+/proxy|mcp|agent/socket)(?:[/?].*)?", re.DOTALL
)


class PassedOn:
    """Tells, before a connection is upgraded, whether the upgrade is for a server in a sandbox."""

    def __init__(self, public_address: PublicAddress) -> None:
        self._public_address = public_address

    def __call__(self, headers: list[tuple[bytes, bytes]], target: bytes) -> bool:
        hosts = Headers(raw=headers).getlist("host")
        is_sandboxs = len(hosts) == 1 and self._public_address.is_sandbox_host(hosts[0])
        return is_sandboxs or _PATHS.fullmatch(target) is not None
