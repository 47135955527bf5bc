from collections.abc import Sequence
from typing import Any

from sandbox_server.access.tenant_repository import TenantRepository
from sandbox_server.db.models import Tenant
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.jobs import kinds
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.registry import Backends

DEFAULT_TENANT = "default"
MAX_RUNNING = 100
MAX_QUEUED = 1000


class Tenants:
    """Tenants: their quotas, and the defaults and rules for their sandboxes."""

    def __init__(self, sessions: Sessions, backends: Backends) -> None:
        self._sessions = sessions
        self._backends = backends

    async def get(self, name: str) -> Tenant:
        async with without_transaction(self._sessions) as session:
            return await TenantRepository(session).get_named(name)

    async def list_page(self, *, limit: int, after: str | None = None) -> Sequence[Tenant]:
        async with without_transaction(self._sessions) as session:
            return await TenantRepository(session).list_page(limit=limit, after=after)

    async def put(
        self,
        name: str,
        *,
        max_running: int,
        max_queued: int,
        defaults: dict[str, Any],
        rules: list[dict[str, Any]],
    ) -> tuple[Tenant, bool]:
        """Create or replace a tenant; returns it and whether it is new. A larger quota admits queued sandboxes at once."""
        self._require_backends(defaults, *rules)
        async with self._sessions.begin() as session:
            put = await TenantRepository(session).put(
                name, max_running=max_running, max_queued=max_queued, defaults=defaults, rules=rules
            )
            for backend in self._backends:
                await JobRepository(session).due(kinds.ADMISSION, backend)
        return put

    def _require_backends(self, *documents: dict[str, Any]) -> None:
        known = set(self._backends)
        for document in documents:
            if (name := document.get("backend")) is not None and name not in known:
                raise InvalidRequest(f"Unknown backend: {name!r}.")
