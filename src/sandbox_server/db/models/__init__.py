"""The tables, by concept."""

from sandbox_server.db.columns import Row
from sandbox_server.db.models.access import Login, Ticket
from sandbox_server.db.models.backends import Backend, Snapshot, Template, TemplateBuild
from sandbox_server.db.models.commands import Command, CommandOutput
from sandbox_server.db.models.jobs import IdempotencyKey, Installation, Job
from sandbox_server.db.models.log import Event, Stream
from sandbox_server.db.models.sandboxes import Sandbox
from sandbox_server.db.models.tenants import ApiKey, Tenant

__all__ = [
    "METADATA",
    "TABLES",
    "ApiKey",
    "Backend",
    "Command",
    "CommandOutput",
    "Event",
    "IdempotencyKey",
    "Installation",
    "Job",
    "Login",
    "Sandbox",
    "Snapshot",
    "Stream",
    "Template",
    "TemplateBuild",
    "Tenant",
    "Ticket",
]

METADATA = Row.metadata
TABLES = METADATA.tables
