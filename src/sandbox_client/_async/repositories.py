from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Unpack

from sandbox_client import models
from sandbox_client._async.pagination import list_all
from sandbox_client._async.templates import AsyncTemplates
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import ForgeOptions, RepositoryChanges, RepositoryOptions


class AsyncForges(AsyncTemplates):
    """GitHub, GitLab, Forgejo and git servers, with the credentials that the server uses there."""

    def list_forges(self) -> AsyncGenerator[models.ForgeRead, None]:
        """List your forges, oldest first."""
        return list_all(self._transport, "/v1/forges", models.Page[models.ForgeRead])

    async def put_forge(
        self, name: str, kind: models.ForgeKind | str, **options: Unpack[ForgeOptions]
    ) -> models.ForgeRead:
        """Create or replace a forge. Omitted secrets keep their stored values."""
        body = request_body(models.ForgeWrite, {"kind": models.ForgeKind(kind), **options})
        return await self._transport.fetch(models.ForgeRead, call("PUT", _forge(name), body))

    async def get_forge(self, name: str) -> models.ForgeRead:
        """Get a forge, without its secrets."""
        return await self._transport.fetch(models.ForgeRead, call("GET", _forge(name)))

    async def delete_forge(self, name: str) -> None:
        """Delete a forge and its secrets."""
        await self._transport.delete(call("DELETE", _forge(name)))

    async def check_forge(
        self, name: str, *, repository: str | None = None
    ) -> models.ForgeCheckRead:
        """Ask the forge what the credential may do, if given in this repository."""
        body = request_body(models.ForgeCheck, {"repository": repository})
        return await self._transport.fetch(
            models.ForgeCheckRead, call("POST", f"{_forge(name)}/check", body)
        )


class AsyncRepositories(AsyncForges):
    """Repositories of forges, and the webhook deliveries about them."""

    async def create_repository(
        self, forge: str, full_name: str, **options: Unpack[RepositoryOptions]
    ) -> models.RepositoryRead:
        """Add a repository, which the server reads from its forge."""
        fields = {"forge": forge, "full_name": full_name, **options}
        request = create("/v1/repositories", request_body(models.RepositoryCreate, fields))
        return await self._transport.fetch(models.RepositoryRead, request)

    def list_repositories(
        self, *, full_name: str | None = None
    ) -> AsyncGenerator[models.RepositoryRead, None]:
        """List repositories, newest first."""
        query = {"full_name": full_name}
        return list_all(
            self._transport, "/v1/repositories", models.Page[models.RepositoryRead], query
        )

    async def get_repository(self, repository_id: str) -> models.RepositoryRead:
        """Get a repository and its settings."""
        return await self._transport.fetch(models.RepositoryRead, call("GET", _path(repository_id)))

    async def update_repository(
        self, repository_id: str, **changes: Unpack[RepositoryChanges]
    ) -> models.RepositoryRead:
        """Change the given settings; None restores a default."""
        body = models.RepositoryUpdate.model_validate(changes)
        request = call("PATCH", _path(repository_id), body)
        return await self._transport.fetch(models.RepositoryRead, request)

    async def delete_repository(self, repository_id: str) -> None:
        """Remove a repository without open tasks from the server."""
        await self._transport.delete(call("DELETE", _path(repository_id)))

    async def prepare_repository(self, repository_id: str) -> models.RepositoryRead:
        """Request a snapshot with the checkout and its setup, from which tasks start."""
        request = call("POST", f"{_path(repository_id)}/prepare", may_repeat=True)
        return await self._transport.fetch(models.RepositoryRead, request)

    def list_deliveries(
        self, *, forge: str | None = None
    ) -> AsyncGenerator[models.DeliveryRead, None]:
        """List webhook deliveries, newest first, with what came of them."""
        query = {"forge": forge}
        return list_all(self._transport, "/v1/deliveries", models.Page[models.DeliveryRead], query)

    async def retry_delivery(self, delivery_id: str) -> models.DeliveryRead:
        """Process a webhook delivery again; what it caused before is not repeated."""
        path = f"/v1/deliveries/{segment(delivery_id)}/retry"
        return await self._transport.fetch(models.DeliveryRead, call("POST", path, may_repeat=True))


def _path(repository_id: str) -> str:
    return f"/v1/repositories/{segment(repository_id)}"


def _forge(name: str) -> str:
    return f"/v1/forges/{segment(name)}"
