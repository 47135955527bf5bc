from collections.abc import AsyncGenerator
from typing import Unpack

from sandbox_client._async.pagination import list_all
from sandbox_client._async.tasks import AsyncTasks
from sandbox_client.models import (
    BackendRead,
    BackendUpdate,
    Health,
    JobRead,
    KeyCreate,
    KeyCreated,
    KeyRead,
    KeyUpdate,
    Page,
    Readiness,
    SnapshotRead,
    Stats,
    TenantRead,
    TenantWrite,
    TicketCreate,
    TicketCreated,
    TicketScope,
    Version,
)
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import KeyOptions, TenantOptions


class AsyncOperations(AsyncTasks):
    """Operations beside sandboxes; many need the admin scope."""

    async def version(self) -> Version:
        """Get the version of the server."""
        return await self._transport.fetch(Version, call("GET", "/version"))

    async def health(self) -> Health:
        """Check that the server process is alive."""
        return await self._transport.fetch(Health, call("GET", "/healthz"))

    async def readiness(self) -> Readiness:
        """Check whether the server can serve requests."""
        return await self._transport.fetch(Readiness, call("GET", "/readyz").expecting(503))

    async def stats(self) -> Stats:
        """Get usage and queues: of all tenants with the admin scope, else of your own."""
        return await self._transport.fetch(Stats, call("GET", "/v1/stats"))

    def list_snapshots(self) -> AsyncGenerator[SnapshotRead, None]:
        """List all snapshots, newest first."""
        return list_all(self._transport, "/v1/snapshots", Page[SnapshotRead])

    async def get_snapshot(self, snapshot_id: str) -> SnapshotRead:
        """Get a snapshot and its state."""
        request = call("GET", f"/v1/snapshots/{segment(snapshot_id)}")
        return await self._transport.fetch(SnapshotRead, request)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete a snapshot."""
        await self._transport.delete(call("DELETE", f"/v1/snapshots/{segment(snapshot_id)}"))

    async def create_ticket(
        self,
        *,
        scope: TicketScope | str = TicketScope.READ,
        sandbox_id: str | None = None,
        ttl_s: float | None = None,
    ) -> TicketCreated:
        """Create a ticket for browsers, which cannot send headers with EventSource and WebSocket."""
        fields = {"scope": TicketScope(scope), "sandbox_id": sandbox_id, "ttl_s": ttl_s}
        request = call("POST", "/v1/tickets", request_body(TicketCreate, fields))
        return await self._transport.fetch(TicketCreated, request)

    async def create_key(self, **options: Unpack[KeyOptions]) -> KeyCreated:
        """Create an API key. Its secret is returned only here."""
        request = create("/v1/keys", request_body(KeyCreate, options))
        return await self._transport.fetch(KeyCreated, request)

    def list_keys(self, *, tenant: str | None = None) -> AsyncGenerator[KeyRead, None]:
        """List API keys, newest first, including revoked ones."""
        return list_all(self._transport, "/v1/keys", Page[KeyRead], {"tenant": tenant})

    async def get_key(self, key_id: str) -> KeyRead:
        """Get an API key, without its secret."""
        return await self._transport.fetch(KeyRead, call("GET", _key(key_id)))

    async def update_key(
        self,
        key_id: str,
        **changes: Unpack[KeyOptions],
    ) -> KeyRead:
        """Change the given fields of an API key."""
        body = KeyUpdate.model_validate(changes)
        return await self._transport.fetch(KeyRead, call("PATCH", _key(key_id), body))

    async def revoke_key(self, key_id: str) -> None:
        """Revoke an API key permanently."""
        await self._transport.delete(call("DELETE", _key(key_id)))

    def list_tenants(self) -> AsyncGenerator[TenantRead, None]:
        """List tenants, oldest first."""
        return list_all(self._transport, "/v1/tenants", Page[TenantRead])

    async def get_tenant(self, name: str) -> TenantRead:
        """Get the quotas, defaults and rules of a tenant."""
        request = call("GET", f"/v1/tenants/{segment(name)}")
        return await self._transport.fetch(TenantRead, request)

    async def put_tenant(self, name: str, **options: Unpack[TenantOptions]) -> TenantRead:
        """Create a tenant or replace its settings; omitted ones get the defaults of a new tenant."""
        body = TenantWrite.model_validate(options)
        request = call("PUT", f"/v1/tenants/{segment(name)}", body)
        return await self._transport.fetch(TenantRead, request)

    def list_backends(self) -> AsyncGenerator[BackendRead, None]:
        """List backends by name."""
        return list_all(self._transport, "/v1/backends", Page[BackendRead])

    async def get_backend(self, name: str) -> BackendRead:
        """Get the state and settings of a backend."""
        request = call("GET", f"/v1/backends/{segment(name)}")
        return await self._transport.fetch(BackendRead, request)

    async def update_backend(self, name: str, *, drained: bool) -> BackendRead:
        """Drain a backend (no new sandboxes) or undo that."""
        body = BackendUpdate(drained=drained)
        request = call("PATCH", f"/v1/backends/{segment(name)}", body)
        return await self._transport.fetch(BackendRead, request)

    def list_jobs(self) -> AsyncGenerator[JobRead, None]:
        """List dead jobs, whose attempts have all failed."""
        return list_all(self._transport, "/v1/jobs", Page[JobRead])

    async def retry_job(self, job_id: int) -> None:
        """Retry a dead job now, with the attempts of a new one."""
        await self._transport.send(call("POST", f"/v1/jobs/{job_id}/retry", may_repeat=True))


def _key(key_id: str) -> str:
    return f"/v1/keys/{segment(key_id)}"
