from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from e2b import AsyncSandbox, ConnectionConfig
from packaging.version import Version

from sandbox_server.providers.e2b.pools import Pools
from sandbox_server.providers.e2b.processes import Processes
from sandbox_server.providers.e2b.working_directories import WorkingDirectories
from sandbox_server.providers.protocol.provider import Access, Endpoint


@dataclass
class _Handle:
    backend: str
    access: Access
    sandbox: AsyncSandbox

    @cached_property
    def directories(self) -> WorkingDirectories:
        return WorkingDirectories(self.backend, self.sandbox, envd_version=self.access.envd_version)

    @cached_property
    def processes(self) -> Processes:
        return Processes(
            self.backend,
            self.sandbox,
            envd_version=self.access.envd_version,
            directories=self.directories,
        )


class Handles:
    """Caches the SDK's objects of recently used sandboxes. Creating one sends no request."""

    def __init__(self, endpoint: Endpoint, *, most: int) -> None:
        self._endpoint = endpoint
        self._most = most
        self._known: OrderedDict[str, _Handle] = OrderedDict()
        self._pools = Pools(endpoint)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, access: Access) -> AsyncSandbox:
        """Return the sandbox's handle; a new one if its credentials have changed."""
        return self._find(access).sandbox

    def processes(self, access: Access) -> Processes:
        return self._find(access).processes

    def directories(self, access: Access) -> WorkingDirectories:
        return self._find(access).directories

    def address(self, access: Access) -> tuple[str, Mapping[str, str]]:
        """Build the URL and headers of the sandbox's envd, without a handle."""
        config = self._config(access)
        url = config.get_sandbox_url(access.provider_id, access.domain or self._endpoint.domain)
        return url, config.sandbox_headers

    def forget(self, provider_id: str) -> None:
        self._known.pop(provider_id, None)

    async def close(self) -> None:
        self._known.clear()
        await self._pools.close()

    def _find(self, access: Access) -> _Handle:
        known = self._known.get(access.provider_id)
        if known is None or known.access != access:
            known = _Handle(self._endpoint.name, access, self._make(access))
            self._known[access.provider_id] = known
        self._known.move_to_end(access.provider_id)
        if len(self._known) > self._most:
            self.forget(next(iter(self._known)))
        return known

    def _make(self, access: Access) -> AsyncSandbox:
        return AsyncSandbox(
            sandbox_id=access.provider_id,
            sandbox_domain=access.domain,
            envd_version=Version(access.envd_version),
            envd_access_token=access.envd_token,
            traffic_access_token=access.traffic_token,
            connection_config=self._config(access),
        )

    def _config(self, access: Access) -> ConnectionConfig:
        headers = {
            "E2b-Sandbox-Id": access.provider_id,
            "E2b-Sandbox-Port": str(ConnectionConfig.envd_port),
        }
        if access.envd_token is not None:
            headers["X-Access-Token"] = access.envd_token
        return ConnectionConfig(
            domain=self._endpoint.domain,
            debug=False,
            api_key=self._endpoint.api_key,
            api_url=self._endpoint.api_url,
            sandbox_url=self._endpoint.sandbox_url,
            extra_sandbox_headers=headers,
            proxy=self._pools.name,
            retries=0,
        )
