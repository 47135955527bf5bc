from collections.abc import AsyncGenerator
from typing import Unpack

from sandbox_client._async.pagination import list_all
from sandbox_client._async.templates import AsyncTemplates
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


class AsyncForges(AsyncTemplates):
    """GitHub, GitLab, Forgejo and git servers, with the credentials that the server uses there."""

    def list_forges(self) -> AsyncGenerator[ForgeRead, None]:
        """List your forges, oldest first."""
        return list_all(self._transport, "/v1/forges", Page[ForgeRead])

    async def put_forge(
        self, name: str, kind: ForgeKind | str, **options: Unpack[ForgeOptions]
    ) -> ForgeRead:
        """Create or replace a forge. Omitted secrets keep their stored values."""
        body = request_body(ForgeWrite, {"kind": ForgeKind(kind), **options})
        return await self._transport.fetch(ForgeRead, call("PUT", _path(name), body))

    async def get_forge(self, name: str) -> ForgeRead:
        """Get a forge, without its secrets."""
        return await self._transport.fetch(ForgeRead, call("GET", _path(name)))

    async def delete_forge(self, name: str) -> None:
        """Delete a forge and its secrets."""
        await self._transport.delete(call("DELETE", _path(name)))

    async def check_forge(self, name: str, *, repository: str | None = None) -> ForgeCheckRead:
        """Ask the forge what the credential may do, if given in this repository."""
        body = request_body(ForgeCheck, {"repository": repository})
        return await self._transport.fetch(
            ForgeCheckRead, call("POST", f"{_path(name)}/check", body)
        )


def _path(name: str) -> str:
    return f"/v1/forges/{segment(name)}"
