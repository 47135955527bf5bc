from collections.abc import AsyncGenerator
from typing import Unpack

from sandbox_client._async.pagination import list_all
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.models import (
    Page,
    TemplateBuildLog,
    TemplateBuildRead,
    TemplateCreate,
    TemplateRead,
    TemplateRebuild,
)
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import TemplateOptions


class AsyncTemplates:
    """What sandboxes can be created from."""

    _transport: AsyncTransport

    def list_templates(self) -> AsyncGenerator[TemplateRead, None]:
        """Give your own templates and everybody's, newest first."""
        return list_all(self._transport, "/v1/templates", Page[TemplateRead])

    async def create_template(self, name: str, **options: Unpack[TemplateOptions]) -> TemplateRead:
        """Have a template built; what is created from it waits until it is ready."""
        request = create("/v1/templates", request_body(TemplateCreate, {"name": name, **options}))
        return await self._transport.fetch(TemplateRead, request)

    async def get_template(self, name: str) -> TemplateRead:
        """Tell where a template is, and how its builds went."""
        return await self._transport.fetch(TemplateRead, call("GET", _path(name)))

    async def delete_template(self, name: str) -> None:
        """Have nothing created from a template any more."""
        await self._transport.delete(call("DELETE", _path(name)))

    async def rebuild_template(self, name: str, **options: Unpack[TemplateOptions]) -> TemplateRead:
        """Build a template again: as before, or all of it as it is said now."""
        request = create(f"{_path(name)}/builds", request_body(TemplateRebuild, options))
        return await self._transport.fetch(TemplateRead, request)

    def list_template_builds(self, name: str) -> AsyncGenerator[TemplateBuildRead, None]:
        """Give a template's last build at each backend."""
        return list_all(self._transport, f"{_path(name)}/builds", Page[TemplateBuildRead])

    async def get_template_build(
        self, name: str, backend: str, *, offset: int = 0
    ) -> TemplateBuildLog:
        """Tell how a build goes, and what it said after so many characters."""
        request = call("GET", f"{_path(name)}/builds/{segment(backend)}", query={"offset": offset})
        return await self._transport.fetch(TemplateBuildLog, request)


def _path(name: str) -> str:
    return f"/v1/templates/{segment(name)}"
