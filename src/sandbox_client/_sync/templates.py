from __future__ import annotations

from collections.abc import Generator
from typing import Unpack

from sandbox_client import models
from sandbox_client._sync.pagination import list_all
from sandbox_client._sync.transport import Transport
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import TemplateOptions


class Templates:
    """Templates and their builds."""

    _transport: Transport

    def list_templates(self) -> Generator[models.TemplateRead, None, None]:
        """List your own and shared templates, newest first."""
        return list_all(self._transport, "/v1/templates", models.Page[models.TemplateRead])

    def get_capabilities(self) -> models.CapabilityMatrix:
        """Get which templates have which capabilities, and at which backends they are ready."""
        return self._transport.fetch(models.CapabilityMatrix, call("GET", "/v1/capabilities"))

    def create_template(self, name: str, **options: Unpack[TemplateOptions]) -> models.TemplateRead:
        """Create a template and start its builds; new sandboxes wait until it is ready."""
        request = create(
            "/v1/templates", request_body(models.TemplateCreate, {"name": name, **options})
        )
        return self._transport.fetch(models.TemplateRead, request)

    def get_template(self, name: str) -> models.TemplateRead:
        """Get a template and its builds."""
        return self._transport.fetch(models.TemplateRead, call("GET", _path(name)))

    def delete_template(self, name: str) -> None:
        """Delete a template."""
        self._transport.delete(call("DELETE", _path(name)))

    def rebuild_template(
        self, name: str, **options: Unpack[TemplateOptions]
    ) -> models.TemplateRead:
        """Rebuild a template: unchanged, or with a complete new definition."""
        request = create(f"{_path(name)}/builds", request_body(models.TemplateRebuild, options))
        return self._transport.fetch(models.TemplateRead, request)

    def list_template_builds(self, name: str) -> Generator[models.TemplateBuildRead, None, None]:
        """List the latest build at each backend."""
        return list_all(
            self._transport, f"{_path(name)}/builds", models.Page[models.TemplateBuildRead]
        )

    def get_template_build(
        self, name: str, backend: str, *, offset: int = 0
    ) -> models.TemplateBuildLog:
        """Get a build and its log from a character offset."""
        request = call("GET", f"{_path(name)}/builds/{segment(backend)}", query={"offset": offset})
        return self._transport.fetch(models.TemplateBuildLog, request)


def _path(name: str) -> str:
    return f"/v1/templates/{segment(name)}"
