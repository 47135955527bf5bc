"""Connections to one provider, shared with no other.

The SDK keeps its own in caches of the process, by the proxy they go through, and cannot be told whose certificates to
trust. So what it takes for a proxy's URL is the name of pools that were put into those caches before.
"""

import itertools
from typing import Final

from e2b.api import (
    ProxyConfig,
    client_async,
    connection_retries,
    pool_idle_timeout,
    pool_max_idle_per_host,
)
from e2b.connection_config import READ_TIMEOUT, HttpVersion
from pyqwest import HTTPTransport, HTTPVersion

_CONNECT_TIMEOUT_S = 10
# Commands and small answers; downloads; downloads that are read as they come.
_KINDS: Final[tuple[tuple[float | None, HttpVersion], ...]] = (
    (None, "2"),
    (None, "1.1"),
    (READ_TIMEOUT, "1.1"),
)
_numbers = itertools.count(1)


class Pools:
    """What the SDK's handles of one provider connect with."""

    def __init__(self, backend: str, *, ca_cert: bytes | None) -> None:
        self.name = f"{backend}-{next(_numbers)}"
        proxy = ProxyConfig(self.name)
        self._keys = [(proxy, read_timeout, version) for read_timeout, version in _KINDS]
        for key in self._keys:
            _, read_timeout, version = key
            pool = HTTPTransport(
                tls_ca_cert=ca_cert,
                tls_include_system_certs=True,
                connect_timeout=_CONNECT_TIMEOUT_S,
                read_timeout=read_timeout,
                http_version=HTTPVersion.HTTP1 if version == "1.1" else None,
                pool_idle_timeout=pool_idle_timeout,
                pool_max_idle_per_host=pool_max_idle_per_host,
                # Each command that runs and each file on its way may have a connection to itself: with a limit what is
                # short would wait for them. How many a tenant may have is seen to where its requests come in.
                max_connections_per_address=None,
                follow_redirects=False,
            )
            client_async._pools[key] = pool  # noqa: SLF001 - the module's text says why
            client_async._transports[key] = client_async.ConnectionRetryTransport(  # noqa: SLF001
                pool, max_retries=connection_retries
            )

    async def close(self) -> None:
        for key in self._keys:
            del client_async._transports[key]  # noqa: SLF001
            for retries in (False, True):
                client_async._httpx_transports.pop((key, retries), None)  # noqa: SLF001
            await client_async._pools.pop(key).aclose()  # noqa: SLF001


def control_pool(*, ca_cert: bytes | None) -> HTTPTransport:
    """Make the connections for questions about sandboxes, which wait for no command to end."""
    return HTTPTransport(
        tls_ca_cert=ca_cert,
        tls_include_system_certs=True,
        connect_timeout=_CONNECT_TIMEOUT_S,
        follow_redirects=False,
    )
