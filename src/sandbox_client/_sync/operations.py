from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Unpack

from sandbox_client import models
from sandbox_client._sync.computers import Browsers
from sandbox_client._sync.pagination import list_all
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import KeyOptions, TenantOptions


class Operations(Browsers):
    """Operations beside sandboxes; many need the admin scope."""

    def version(self) -> models.Version:
        """Get the version of the server."""
        return self._transport.fetch(models.Version, call("GET", "/version"))

    def health(self) -> models.Health:
        """Check that the server process is alive."""
        return self._transport.fetch(models.Health, call("GET", "/healthz"))

    def readiness(self) -> models.Readiness:
        """Check whether the server can serve requests."""
        return self._transport.fetch(models.Readiness, call("GET", "/readyz").expecting(503))

    def stats(self) -> models.Stats:
        """Get usage and queues: of all tenants with the admin scope, else of your own."""
        return self._transport.fetch(models.Stats, call("GET", "/v1/stats"))

    def get_configuration(self) -> models.Configuration:
        """Get your tenant's configuration: templates and limits of its sandboxes."""
        return self._transport.fetch(models.Configuration, call("GET", "/v1/configuration"))

    def put_configuration(
        self, configuration: models.Configuration | Mapping[str, Any]
    ) -> models.Configuration:
        """Replace your tenant's configuration; omitted fields are reset."""
        body = models.Configuration.model_validate(configuration)
        request = call("PUT", "/v1/configuration", body)
        return self._transport.fetch(models.Configuration, request)

    def list_snapshots(self) -> Generator[models.SnapshotRead, None, None]:
        """List all snapshots, newest first."""
        return list_all(self._transport, "/v1/snapshots", models.Page[models.SnapshotRead])

    def get_snapshot(self, snapshot_id: str) -> models.SnapshotRead:
        """Get a snapshot and its state."""
        request = call("GET", f"/v1/snapshots/{segment(snapshot_id)}")
        return self._transport.fetch(models.SnapshotRead, request)

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete a snapshot."""
        self._transport.delete(call("DELETE", f"/v1/snapshots/{segment(snapshot_id)}"))

    def create_ticket(
        self,
        *,
        scope: models.TicketScope | str = models.TicketScope.READ,
        sandbox_id: str | None = None,
        ttl_s: float | None = None,
    ) -> models.TicketCreated:
        """Create a ticket for browsers, which cannot send headers with EventSource and WebSocket."""
        fields = {"scope": models.TicketScope(scope), "sandbox_id": sandbox_id, "ttl_s": ttl_s}
        request = call("POST", "/v1/tickets", request_body(models.TicketCreate, fields))
        return self._transport.fetch(models.TicketCreated, request)

    def create_key(self, **options: Unpack[KeyOptions]) -> models.KeyCreated:
        """Create an API key. Its secret is returned only here."""
        request = create("/v1/keys", request_body(models.KeyCreate, options))
        return self._transport.fetch(models.KeyCreated, request)

    def list_keys(self, *, tenant: str | None = None) -> Generator[models.KeyRead, None, None]:
        """List API keys, newest first, including revoked ones."""
        return list_all(
            self._transport, "/v1/keys", models.Page[models.KeyRead], {"tenant": tenant}
        )

    def get_key(self, key_id: str) -> models.KeyRead:
        """Get an API key, without its secret."""
        return self._transport.fetch(models.KeyRead, call("GET", _key(key_id)))

    def update_key(
        self,
        key_id: str,
        **changes: Unpack[KeyOptions],
    ) -> models.KeyRead:
        """Change the given fields of an API key."""
        body = models.KeyUpdate.model_validate(changes)
        return self._transport.fetch(models.KeyRead, call("PATCH", _key(key_id), body))

    def revoke_key(self, key_id: str) -> None:
        """Revoke an API key permanently."""
        self._transport.delete(call("DELETE", _key(key_id)))

    def list_tenants(self) -> Generator[models.TenantRead, None, None]:
        """List tenants, oldest first."""
        return list_all(self._transport, "/v1/tenants", models.Page[models.TenantRead])

    def get_tenant(self, name: str) -> models.TenantRead:
        """Get the quotas, defaults and rules of a tenant."""
        request = call("GET", f"/v1/tenants/{segment(name)}")
        return self._transport.fetch(models.TenantRead, request)

    def put_tenant(self, name: str, **options: Unpack[TenantOptions]) -> models.TenantRead:
        """Create a tenant or replace its settings; omitted ones get the defaults of a new tenant."""
        body = models.TenantWrite.model_validate(options)
        request = call("PUT", f"/v1/tenants/{segment(name)}", body)
        return self._transport.fetch(models.TenantRead, request)

    def list_backends(self) -> Generator[models.BackendRead, None, None]:
        """List backends by name."""
        return list_all(self._transport, "/v1/backends", models.Page[models.BackendRead])

    def get_backend(self, name: str) -> models.BackendRead:
        """Get the state and settings of a backend."""
        request = call("GET", f"/v1/backends/{segment(name)}")
        return self._transport.fetch(models.BackendRead, request)

    def update_backend(self, name: str, *, drained: bool) -> models.BackendRead:
        """Drain a backend (no new sandboxes) or undo that."""
        body = models.BackendUpdate(drained=drained)
        request = call("PATCH", f"/v1/backends/{segment(name)}", body)
        return self._transport.fetch(models.BackendRead, request)

    def list_jobs(self) -> Generator[models.JobRead, None, None]:
        """List dead jobs, whose attempts have all failed."""
        return list_all(self._transport, "/v1/jobs", models.Page[models.JobRead])

    def retry_job(self, job_id: int) -> None:
        """Retry a dead job now, with the attempts of a new one."""
        self._transport.send(call("POST", f"/v1/jobs/{job_id}/retry", may_repeat=True))


def _key(key_id: str) -> str:
    return f"/v1/keys/{segment(key_id)}"
