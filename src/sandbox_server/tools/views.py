"""What is known of the services in a sandbox, as the API tells it."""

from sandbox_client.models import ServicesRead, ToolServerRead
from sandbox_server.db.models import Sandbox
from sandbox_server.tools.health import ServicesHealth


def view_services(row: Sandbox, health: ServicesHealth) -> ServicesRead | None:
    if not row.has_services:
        return None
    is_written = row.services_digest is not None
    return ServicesRead(
        settings="written" if is_written else "pending",
        settings_error=None if is_written else health.settings_error,
        tool_server=ToolServerRead.model_validate(health.tool_server, from_attributes=True),
        agent=health.agent,
        code_server=health.code_server,
        checked_at=health.checked_at,
    )
