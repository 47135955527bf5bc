from collections.abc import Generator
from typing import Unpack

from sandbox_client._sync.pagination import list_all
from sandbox_client._sync.templates import Templates
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
from sandbox_client.protocol.calls import call, create, given, segment
from sandbox_client.protocol.options import KeyOptions, TenantOptions


class Operations(Templates):
    """What is asked of a server beside its sandboxes, much of it by its admins."""

    def version(self) -> Version:
        """Tell which server this is."""
        return self._transport.ask(Version, call("GET", "/version"))

    def health(self) -> Health:
        """Tell that the server's process is alive."""
        return self._transport.ask(Health, call("GET", "/healthz"))

    def readiness(self) -> Readiness:
        """Tell whether the server can serve requests, and if not, why."""
        return self._transport.ask(Readiness, call("GET", "/readyz").expecting(503))

    def stats(self) -> Stats:
        """Tell how full it is and who waits: of everybody to an admin's key, to others of their own tenant."""
        return self._transport.ask(Stats, call("GET", "/v1/stats"))

    def list_snapshots(self) -> Generator[SnapshotRead, None, None]:
        """Give all that was kept of sandboxes, newest first."""
        return list_all(self._transport, "/v1/snapshots", Page[SnapshotRead])

    def get_snapshot(self, snapshot_id: str) -> SnapshotRead:
        """Tell what a snapshot is of, and whether it is ready."""
        asked = call("GET", f"/v1/snapshots/{segment(snapshot_id)}")
        return self._transport.ask(SnapshotRead, asked)

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Have nothing created from a snapshot any more."""
        self._transport.remove(call("DELETE", f"/v1/snapshots/{segment(snapshot_id)}"))

    def create_ticket(
        self,
        *,
        scope: TicketScope | str = TicketScope.READ,
        sandbox_id: str | None = None,
        ttl_s: float | None = None,
    ) -> TicketCreated:
        """Make a ticket for a browser, which sends no header with an EventSource or a WebSocket."""
        said = {"scope": TicketScope(scope), "sandbox_id": sandbox_id, "ttl_s": ttl_s}
        asked = call("POST", "/v1/tickets", given(TicketCreate, said))
        return self._transport.ask(TicketCreated, asked)

    def create_key(self, **wanted: Unpack[KeyOptions]) -> KeyCreated:
        """Make an API key; its secret can never be told again."""
        asked = create("/v1/keys", given(KeyCreate, wanted))
        return self._transport.ask(KeyCreated, asked)

    def list_keys(self, *, tenant: str | None = None) -> Generator[KeyRead, None, None]:
        """Give the API keys, newest first, and those that were revoked too."""
        return list_all(self._transport, "/v1/keys", Page[KeyRead], {"tenant": tenant})

    def get_key(self, key_id: str) -> KeyRead:
        """Tell all of an API key but its secret."""
        return self._transport.ask(KeyRead, call("GET", _key(key_id)))

    def update_key(
        self,
        key_id: str,
        **changes: Unpack[KeyOptions],
    ) -> KeyRead:
        """Change what an API key may do, and leave the rest as it is."""
        body = KeyUpdate.model_validate(changes)
        return self._transport.ask(KeyRead, call("PATCH", _key(key_id), body))

    def revoke_key(self, key_id: str) -> None:
        """End an API key for good."""
        self._transport.remove(call("DELETE", _key(key_id)))

    def list_tenants(self) -> Generator[TenantRead, None, None]:
        """Give the tenants, oldest first."""
        return list_all(self._transport, "/v1/tenants", Page[TenantRead])

    def get_tenant(self, name: str) -> TenantRead:
        """Tell what a tenant may have, and what its sandboxes are when their requests do not say."""
        asked = call("GET", f"/v1/tenants/{segment(name)}")
        return self._transport.ask(TenantRead, asked)

    def put_tenant(self, name: str, **wanted: Unpack[TenantOptions]) -> TenantRead:
        """Make a tenant, or replace all that it may have; what is left out is as for a new one."""
        body = TenantWrite.model_validate(wanted)
        asked = call("PUT", f"/v1/tenants/{segment(name)}", body)
        return self._transport.ask(TenantRead, asked)

    def list_backends(self) -> Generator[BackendRead, None, None]:
        """Give the providers of sandboxes, by name."""
        return list_all(self._transport, "/v1/backends", Page[BackendRead])

    def get_backend(self, name: str) -> BackendRead:
        """Tell whether a provider of sandboxes answers, and what holds there."""
        asked = call("GET", f"/v1/backends/{segment(name)}")
        return self._transport.ask(BackendRead, asked)

    def update_backend(self, name: str, *, drained: bool) -> BackendRead:
        """Let a provider have no new sandboxes, or let it have them again."""
        body = BackendUpdate(drained=drained)
        asked = call("PATCH", f"/v1/backends/{segment(name)}", body)
        return self._transport.ask(BackendRead, asked)

    def list_jobs(self) -> Generator[JobRead, None, None]:
        """Give what was given up since every attempt failed."""
        return list_all(self._transport, "/v1/jobs", Page[JobRead])

    def retry_job(self, job_id: int) -> None:
        """Have a job tried again at once, and as often as a new one."""
        self._transport.send(call("POST", f"/v1/jobs/{job_id}/retry", may_repeat=True))


def _key(key_id: str) -> str:
    return f"/v1/keys/{segment(key_id)}"
