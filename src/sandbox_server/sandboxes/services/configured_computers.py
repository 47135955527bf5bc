from sqlalchemy import select

from sandbox_server.db.models import Tenant
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.computers.defaults import ComputerDefaults
from sandbox_server.sandboxes.services.encrypted_columns import open_computers
from sandbox_server.vault import Vault


class ConfiguredComputers:
    """The tenants' values of desktops, browsers and MCP servers."""

    def __init__(self, sessions: Sessions, vault: Vault) -> None:
        self._sessions = sessions
        self._vault = vault

    async def defaults_for(self, caller: Caller, agent_type: str | None) -> ComputerDefaults:
        """Read the values that apply to requests of an agent type."""
        async with without_transaction(self._sessions) as session:
            tenant = (
                await session.scalars(select(Tenant).where(Tenant.id == caller.tenant_id))
            ).one()
        return ComputerDefaults.of(open_computers(self._vault, tenant), agent_type)
