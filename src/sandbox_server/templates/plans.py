"""What a build is made from: a tenant's own words, or what comes with the server."""

from dataclasses import dataclass

from sandbox_server.db.models import Template, TemplateBuild
from sandbox_server.domain.templates import Definition, name_at_provider
from sandbox_server.providers.protocol.build_context import BuildContext
from sandbox_server.templates.definitions import open_definition
from sandbox_server.templates.shipped import Shipped
from sandbox_server.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Plan:
    name: str
    """As its provider will know it."""
    definition: Definition
    context: BuildContext | None = None


class Plans:
    def __init__(self, vault: Vault, shipped: Shipped) -> None:
        self._vault = vault
        self._shipped = shipped

    def find(self, template: Template, build: TemplateBuild) -> Plan | None:
        """Find the plan of a build; None is that a server of another version has it."""
        if build.digest is None:
            definition = open_definition(self._vault, template)
            return Plan(name=name_at_provider(template.id), definition=definition)
        found = self._shipped.find(template.name, digest=build.digest)
        if found is None:
            return None
        return Plan(name=template.name, definition=found.definition, context=found.context)
