from collections.abc import Generator
from typing import Unpack

from sandbox_client._sync.pagination import list_all
from sandbox_client._sync.templates import Templates
from sandbox_client.models import (
    ForgeCheck,
    ForgeCheckRead,
    ForgeKind,
    ForgeRead,
    ForgeWrite,
    Page,
)
from sandbox_client.protocol.calls import call, request_body, segment
from sandbox_client.protocol.options import ForgeOptions


class Forges(Templates):
    """GitHub, GitLab, Forgejo and git servers, with the credentials that the server uses there."""

    def list_forges(self) -> Generator[ForgeRead, None, None]:
        """List your forges, oldest first."""
        return list_all(self._transport, "/v1/forges", Page[ForgeRead])

    def put_forge(
        self, name: str, kind: ForgeKind | str, **options: Unpack[ForgeOptions]
    ) -> ForgeRead:
        """Create or replace a forge. Omitted secrets keep their stored values."""
        body = request_body(ForgeWrite, {"kind": ForgeKind(kind), **options})
        return self._transport.fetch(ForgeRead, call("PUT", _path(name), body))

    def get_forge(self, name: str) -> ForgeRead:
        """Get a forge, without its secrets."""
        return self._transport.fetch(ForgeRead, call("GET", _path(name)))

    def delete_forge(self, name: str) -> None:
        """Delete a forge and its secrets."""
        self._transport.delete(call("DELETE", _path(name)))

    def check_forge(self, name: str, *, repository: str | None = None) -> ForgeCheckRead:
        """Ask the forge what the credential may do, if given in this repository."""
        body = request_body(ForgeCheck, {"repository": repository})
        return self._transport.fetch(ForgeCheckRead, call("POST", f"{_path(name)}/check", body))


def _path(name: str) -> str:
    return f"/v1/forges/{segment(name)}"
