from typing import Annotated

from fastapi import APIRouter

from sandbox_client.models import AgentTypeDefaults, Configuration
from sandbox_server.access.configuration.service import (
    SECTIONS,
    Configurations,
    StoredConfiguration,
    is_by_agent_type,
)
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import LOOKED_UP, may_fail_with
from sandbox_server.http.deps import Operator, Reader, depends_on
from sandbox_server.http.json_body import JsonRoute

router = APIRouter(route_class=JsonRoute, prefix="/v1/configuration", tags=["access"])

ConfigurationsDep = Annotated[Configurations, depends_on(Configurations)]


@router.get("")
async def get_configuration(caller: Reader, configurations: ConfigurationsDep) -> Configuration:
    """Get your tenant's configuration: templates and limits of its sandboxes, by default, for desktops and browsers, and by agent type."""
    return _view(await configurations.get(caller))


@router.put("")
@may_fail_with(errors.InvalidRequest, *LOOKED_UP)
async def put_configuration(
    body: Configuration, caller: Operator, configurations: ConfigurationsDep
) -> Configuration:
    """Replace your tenant's configuration. Omitted fields are reset to the server's defaults; existing sandboxes are not changed."""
    return _view(await configurations.put(caller, body))


def _view(stored: StoredConfiguration) -> Configuration:
    defaults, computers = dict(stored.tenant.defaults), stored.computers
    sections = {name: {**defaults.pop(name, {}), **computers.get(name, {})} for name in SECTIONS}
    if "mcp_servers" in computers:
        defaults["mcp_servers"] = computers["mcp_servers"]
    by_agent_type = computers.get("agent_types", {})
    agent_types: dict[str, AgentTypeDefaults] = {}
    for rule in stored.tenant.rules:
        if is_by_agent_type(rule):
            name = rule["match"]["agent_type"]
            fields = {key: value for key, value in rule.items() if key != "match"}
            fields |= by_agent_type.get(name, {})
            agent_types.setdefault(name, AgentTypeDefaults.model_validate(fields))
    return Configuration.model_validate(
        {"default": defaults, **sections, "agent_types": agent_types}
    )
