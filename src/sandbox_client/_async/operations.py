from collections.abc import AsyncGenerator
from typing import Unpack

from sandbox_client._async.pagination import list_all
from sandbox_client._async.templates import AsyncTemplates
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


class AsyncOperations(AsyncTemplates):
    """What is asked of a server beside its sandboxes, much of it by its admins."""

    async def version(self) -> Version:
        """Tell which server this is."""
        return await self._transport.fetch(Version, call("GET", "/version"))

    async def health(self) -> Health:
        """Tell that the server's process is alive."""
        return await self._transport.fetch(Health, call("GET", "/healthz"))

    async def readiness(self) -> Readiness:
        """Tell whether the server can serve requests, and if not, why."""
        return await self._transport.fetch(Readiness, call("GET", "/readyz").expecting(503))

    async def stats(self) -> Stats:
        """Tell how full it is and who waits: of everybody to an admin's key, to others of their own tenant."""
        return await self._transport.fetch(Stats, call("GET", "/v1/stats"))

    def list_snapshots(self) -> AsyncGenerator[SnapshotRead, None]:
        """Give all that was kept of sandboxes, newest first."""
        return list_all(self._transport, "/v1/snapshots", Page[SnapshotRead])

    async def get_snapshot(self, snapshot_id: str) -> SnapshotRead:
        """Tell what a snapshot is of, and whether it is ready."""
        request = call("GET", f"/v1/snapshots/{segment(snapshot_id)}")
        return await self._transport.fetch(SnapshotRead, request)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Have nothing created from a snapshot any more."""
        await self._transport.delete(call("DELETE", f"/v1/snapshots/{segment(snapshot_id)}"))

    async def create_ticket(
        self,
        *,
        scope: TicketScope | str = TicketScope.READ,
        sandbox_id: str | None = None,
        ttl_s: float | None = None,
    ) -> TicketCreated:
        """Make a ticket for a browser, which sends no header with an EventSource or a WebSocket."""
        fields = {"scope": TicketScope(scope), "sandbox_id": sandbox_id, "ttl_s": ttl_s}
        request = call("POST", "/v1/tickets", request_body(TicketCreate, fields))
        return await self._transport.fetch(TicketCreated, request)

    async def create_key(self, **options: Unpack[KeyOptions]) -> KeyCreated:
        """Make an API key; its secret can never be told again."""
        request = create("/v1/keys", request_body(KeyCreate, options))
        return await self._transport.fetch(KeyCreated, request)

    def list_keys(self, *, tenant: str | None = None) -> AsyncGenerator[KeyRead, None]:
        """Give the API keys, newest first, and those that were revoked too."""
        return list_all(self._transport, "/v1/keys", Page[KeyRead], {"tenant": tenant})

    async def get_key(self, key_id: str) -> KeyRead:
        """Tell all of an API key but its secret."""
        return await self._transport.fetch(KeyRead, call("GET", _key(key_id)))

    async def update_key(
        self,
        key_id: str,
        **changes: Unpack[KeyOptions],
    ) -> KeyRead:
        """Change what an API key may do, and leave the rest as it is."""
        body = KeyUpdate.model_validate(changes)
        return await self._transport.fetch(KeyRead, call("PATCH", _key(key_id), body))

    async def revoke_key(self, key_id: str) -> None:
        """End an API key for good."""
        await self._transport.delete(call("DELETE", _key(key_id)))

    def list_tenants(self) -> AsyncGenerator[TenantRead, None]:
        """Give the tenants, oldest first."""
        return list_all(self._transport, "/v1/tenants", Page[TenantRead])

    async def get_tenant(self, name: str) -> TenantRead:
        """Tell what a tenant may have, and what its sandboxes are when their requests do not say."""
        request = call("GET", f"/v1/tenants/{segment(name)}")
        return await self._transport.fetch(TenantRead, request)

    async def put_tenant(self, name: str, **options: Unpack[TenantOptions]) -> TenantRead:
        """Make a tenant, or replace all that it may have; what is left out is as for a new one."""
        body = TenantWrite.model_validate(options)
        request = call("PUT", f"/v1/tenants/{segment(name)}", body)
        return await self._transport.fetch(TenantRead, request)

    def list_backends(self) -> AsyncGenerator[BackendRead, None]:
        """Give the providers of sandboxes, by name."""
        return list_all(self._transport, "/v1/backends", Page[BackendRead])

    async def get_backend(self, name: str) -> BackendRead:
        """Tell whether a provider of sandboxes answers, and what holds there."""
        request = call("GET", f"/v1/backends/{segment(name)}")
        return await self._transport.fetch(BackendRead, request)

    async def update_backend(self, name: str, *, drained: bool) -> BackendRead:
        """Let a provider have no new sandboxes, or let it have them again."""
        body = BackendUpdate(drained=drained)
        request = call("PATCH", f"/v1/backends/{segment(name)}", body)
        return await self._transport.fetch(BackendRead, request)

    def list_jobs(self) -> AsyncGenerator[JobRead, None]:
        """Give what was given up since every attempt failed."""
        return list_all(self._transport, "/v1/jobs", Page[JobRead])

    async def retry_job(self, job_id: int) -> None:
        """Have a job tried again at once, and as often as a new one."""
        await self._transport.send(call("POST", f"/v1/jobs/{job_id}/retry", may_repeat=True))


def _key(key_id: str) -> str:
    return f"/v1/keys/{segment(key_id)}"
