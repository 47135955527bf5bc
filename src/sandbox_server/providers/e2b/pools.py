"""Connections to one provider, shared with no other.

The SDK keeps connection pools in process-wide caches by proxy URL, and has no parameter for trusted certificates. So our
pools are put into those caches beforehand, and their key is passed to the SDK as the proxy's URL.
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

from sandbox_server.providers.protocol.provider import Endpoint

_CONNECT_TIMEOUT_S = 10
# Commands and small answers; downloads; downloads that are read as they come.
_KINDS: Final[tuple[tuple[float | None, HttpVersion], ...]] = (
    (None, "2"),
    (None, "1.1"),
    (READ_TIMEOUT, "1.1"),
)
_numbers = itertools.count(1)


class Pools:
    """The connections of one provider's SDK handles."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.name = f"{endpoint.name}-{next(_numbers)}"
        proxy = ProxyConfig(self.name)
        self._keys = [(proxy, read_timeout, version) for read_timeout, version in _KINDS]
        for key in self._keys:
            _, read_timeout, version = key
            pool = HTTPTransport(
                tls_ca_cert=endpoint.ca_cert,
                # To load them takes 5 ms a pool.
                tls_include_system_certs=endpoint.has_encrypted_sandboxes,
                connect_timeout=_CONNECT_TIMEOUT_S,
                read_timeout=read_timeout,
                http_version=HTTPVersion.HTTP1 if version == "1.1" else None,
                pool_idle_timeout=pool_idle_timeout,
                pool_max_idle_per_host=pool_max_idle_per_host,
                # Every running command and transfer may have its own connection: with a limit, short requests
                # would wait for them. The number per tenant is limited where its requests arrive.
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
    """Create connections for health checks, which do not wait for running commands."""
    return HTTPTransport(
        tls_ca_cert=ca_cert,
        tls_include_system_certs=True,
        connect_timeout=_CONNECT_TIMEOUT_S,
        follow_redirects=False,
    )
