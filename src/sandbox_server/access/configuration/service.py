"""The configuration of a tenant: a view of its defaults and rules, by section and agent type.

Rules that match more or other than an agent type belong to administrators (`PUT /v1/tenants/{name}`) and are kept: those about
agent types before the configuration's, which would hide them, the others after it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from sandbox_client.models import (
    BrowserValues,
    Configuration,
    DesktopValues,
    SandboxDefaults,
    TemplateDefaults,
)
from sandbox_server.access.tenant_repository import TenantRepository
from sandbox_server.access.tenants import MAX_QUEUED, MAX_RUNNING
from sandbox_server.db.models import Tenant
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.computers.defaults import MASK, has_mask, masked, unmasked
from sandbox_server.domain.errors import InvalidRequest, TemplateNotFound
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.services.encrypted_columns import open_computers, seal_computers
from sandbox_server.templates.capabilities import TemplateCapabilities
from sandbox_server.vault import Vault

SECTIONS = ("desktop", "browser")
COMPUTERS = (*SECTIONS, "mcp_servers")

Rule = Mapping[str, Any]


@dataclass(frozen=True)
class StoredConfiguration:
    """A tenant, and its defaults of desktops, browsers and MCP servers without secrets."""

    tenant: Tenant
    computers: Mapping[str, Any]


class Configurations:
    """Reads, checks and stores the configurations of tenants."""

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        capabilities: TemplateCapabilities,
        vault: Vault,
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._capabilities = capabilities
        self._vault = vault

    async def get(self, caller: Caller) -> StoredConfiguration:
        async with without_transaction(self._sessions) as session:
            return self._stored(await TenantRepository(session).get(caller.tenant_id))

    async def put(self, caller: Caller, configuration: Configuration) -> StoredConfiguration:
        """Replace the configuration of the caller's tenant; templates, backends and capabilities must exist."""
        require_backends(configuration, self._backends)
        await self._require_templates(configuration, caller.tenant_id)
        async with self._sessions.begin() as session:
            row = await TenantRepository(session).lock(caller.tenant_id)
            write_configuration(row, configuration, vault=self._vault)
            return self._stored(row)

    def _stored(self, row: Tenant) -> StoredConfiguration:
        return StoredConfiguration(row, masked(open_computers(self._vault, row)))

    async def _require_templates(self, configuration: Configuration, tenant_id: str) -> None:
        for key, part in _parts(configuration):
            try:
                await self._require_template(part, key=key, tenant_id=tenant_id)
            except (InvalidRequest, TemplateNotFound) as error:
                field = "template" if part.template is not None else "capabilities"
                raise InvalidRequest(f"{key}.{field}: {error}") from None

    async def _require_template(self, part: SandboxDefaults, *, key: str, tenant_id: str) -> None:
        section = frozenset({key}) if key in SECTIONS else frozenset()
        if part.template is not None:
            await self._capabilities.require(
                part.template, section, backend=part.backend, tenant_id=tenant_id
            )
        elif isinstance(part, TemplateDefaults) and part.capabilities:
            await self._capabilities.require_any(part.capabilities, tenant_id=tenant_id)


async def apply_configurations(
    sessions: Sessions, configurations: Mapping[str, Configuration], *, vault: Vault
) -> None:
    """Store the configurations of a file, by name of the tenant; missing tenants are created."""
    async with sessions.begin() as session:
        tenants = TenantRepository(session)
        for name, configuration in sorted(configurations.items()):
            await tenants.add_missing(name, max_running=MAX_RUNNING, max_queued=MAX_QUEUED)
            row = await tenants.lock((await tenants.get_named(name)).id)
            write_configuration(row, configuration, vault=vault)


def write_configuration(row: Tenant, configuration: Configuration, *, vault: Vault) -> None:
    document = configuration.model_dump(mode="json", exclude_none=True)
    computers = unmasked(_take_computers(document), open_computers(vault, row))
    if has_mask(computers):
        raise InvalidRequest(f"{MASK!r} stands for a stored value, and one of them is not stored.")
    row.computers_sealed = seal_computers(vault, row.id, computers)
    sections = {name: document[name] for name in SECTIONS if document[name]}
    row.defaults = {**document["default"], **sections}
    row.rules = _merge_rules(
        row.rules,
        [
            {"match": {"agent_type": name}, **fields}
            for name, fields in document["agent_types"].items()
        ],
    )


def _take_computers(document: dict[str, Any]) -> dict[str, Any]:
    """Take the settings of desktops, browsers and MCP servers out of a configuration."""
    by_agent_type = {
        name: {key: fields.pop(key) for key in COMPUTERS if key in fields}
        for name, fields in document["agent_types"].items()
    }
    taken = {
        "desktop": _take(document["desktop"], DesktopValues),
        "browser": _take(document["browser"], BrowserValues),
        "mcp_servers": document["default"].pop("mcp_servers", {}),
        "agent_types": {name: fields for name, fields in by_agent_type.items() if fields},
    }
    return {name: values for name, values in taken.items() if values}


def _take(section: dict[str, Any], values: type[BaseModel]) -> dict[str, Any]:
    return {name: section.pop(name) for name in values.model_fields if name in section}


def require_backends(configuration: Configuration, backends: Iterable[str]) -> None:
    """Refuse names of backends that are not configured."""
    names = list(backends)
    for key, part in _parts(configuration):
        if part.backend is not None and part.backend not in names:
            known = ", ".join(names) or "none"
            raise InvalidRequest(
                f"{key}.backend: Unknown backend: {part.backend!r}. Backends: {known}."
            )


def _parts(configuration: Configuration) -> Iterator[tuple[str, SandboxDefaults]]:
    yield "default", configuration.default
    yield "desktop", configuration.desktop
    yield "browser", configuration.browser
    for name, part in configuration.agent_types.items():
        yield f"agent_types.{name}", part


def _merge_rules(stored: Sequence[Rule], configured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    others = [dict(rule) for rule in stored if not is_by_agent_type(rule)]
    narrower = [rule for rule in others if "agent_type" in rule.get("match", {})]
    return [*narrower, *configured, *(rule for rule in others if rule not in narrower)]


def is_by_agent_type(rule: Rule) -> bool:
    return set(rule.get("match", {})) == {"agent_type"}
