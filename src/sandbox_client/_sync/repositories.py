from __future__ import annotations

from collections.abc import Generator
from typing import Unpack

from sandbox_client import models
from sandbox_client._sync.pagination import list_all
from sandbox_client._sync.templates import Templates
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import ForgeOptions, RepositoryChanges, RepositoryOptions


class Forges(Templates):
    """GitHub, GitLab, Forgejo and git servers, with the credentials that the server uses there."""

    def list_forges(self) -> Generator[models.ForgeRead, None, None]:
        """List your forges, oldest first."""
        return list_all(self._transport, "/v1/forges", models.Page[models.ForgeRead])

    def put_forge(
        self, name: str, kind: models.ForgeKind | str, **options: Unpack[ForgeOptions]
    ) -> models.ForgeRead:
        """Create or replace a forge. Omitted secrets keep their stored values."""
        body = request_body(models.ForgeWrite, {"kind": models.ForgeKind(kind), **options})
        return self._transport.fetch(models.ForgeRead, call("PUT", _forge(name), body))

    def get_forge(self, name: str) -> models.ForgeRead:
        """Get a forge, without its secrets."""
        return self._transport.fetch(models.ForgeRead, call("GET", _forge(name)))

    def delete_forge(self, name: str) -> None:
        """Delete a forge and its secrets."""
        self._transport.delete(call("DELETE", _forge(name)))

    def check_forge(self, name: str, *, repository: str | None = None) -> models.ForgeCheckRead:
        """Ask the forge what the credential may do, if given in this repository."""
        body = request_body(models.ForgeCheck, {"repository": repository})
        return self._transport.fetch(
            models.ForgeCheckRead, call("POST", f"{_forge(name)}/check", body)
        )


class Repositories(Forges):
    """Repositories of forges, and the webhook deliveries about them."""

    def create_repository(
        self, forge: str, full_name: str, **options: Unpack[RepositoryOptions]
    ) -> models.RepositoryRead:
        """Add a repository, which the server reads from its forge."""
        fields = {"forge": forge, "full_name": full_name, **options}
        request = create("/v1/repositories", request_body(models.RepositoryCreate, fields))
        return self._transport.fetch(models.RepositoryRead, request)

    def list_repositories(
        self, *, full_name: str | None = None
    ) -> Generator[models.RepositoryRead, None, None]:
        """List repositories, newest first."""
        query = {"full_name": full_name}
        return list_all(
            self._transport, "/v1/repositories", models.Page[models.RepositoryRead], query
        )

    def get_repository(self, repository_id: str) -> models.RepositoryRead:
        """Get a repository and its settings."""
        return self._transport.fetch(models.RepositoryRead, call("GET", _path(repository_id)))

    def update_repository(
        self, repository_id: str, **changes: Unpack[RepositoryChanges]
    ) -> models.RepositoryRead:
        """Change the given settings; None restores a default."""
        body = models.RepositoryUpdate.model_validate(changes)
        request = call("PATCH", _path(repository_id), body)
        return self._transport.fetch(models.RepositoryRead, request)

    def delete_repository(self, repository_id: str) -> None:
        """Remove a repository without open tasks from the server."""
        self._transport.delete(call("DELETE", _path(repository_id)))

    def prepare_repository(self, repository_id: str) -> models.RepositoryRead:
        """Request a snapshot with the checkout and its setup, from which tasks start."""
        request = call("POST", f"{_path(repository_id)}/prepare", may_repeat=True)
        return self._transport.fetch(models.RepositoryRead, request)

    def list_deliveries(
        self, *, forge: str | None = None
    ) -> Generator[models.DeliveryRead, None, None]:
        """List webhook deliveries, newest first, with what came of them."""
        query = {"forge": forge}
        return list_all(self._transport, "/v1/deliveries", models.Page[models.DeliveryRead], query)

    def retry_delivery(self, delivery_id: str) -> models.DeliveryRead:
        """Process a webhook delivery again; what it caused before is not repeated."""
        path = f"/v1/deliveries/{segment(delivery_id)}/retry"
        return self._transport.fetch(models.DeliveryRead, call("POST", path, may_repeat=True))


def _path(repository_id: str) -> str:
    return f"/v1/repositories/{segment(repository_id)}"


def _forge(name: str) -> str:
    return f"/v1/forges/{segment(name)}"
