"""The tables, by concept."""

from sandbox_server.db.models.access import Login, Ticket
from sandbox_server.db.models.backends import Backend, Snapshot, Template, TemplateBuild
from sandbox_server.db.models.browsers import (
    BrowserContext,
    BrowserDriver,
    BrowserExtension,
    BrowserFilePart,
    BrowserRecord,
    BrowserSession,
)
from sandbox_server.db.models.columns import Row
from sandbox_server.db.models.commands import Command, CommandOutput
from sandbox_server.db.models.desktops import (
    Desktop,
    DesktopLink,
    DesktopRecording,
    DesktopRecordingPart,
)
from sandbox_server.db.models.forges import Forge, ForgeBudget, ForgeToken, WebhookDelivery
from sandbox_server.db.models.jobs import IdempotencyKey, Installation, Job
from sandbox_server.db.models.log import Event, Stream
from sandbox_server.db.models.pushes import GitPush, GitPushPart
from sandbox_server.db.models.repositories import Repository
from sandbox_server.db.models.sandboxes import Sandbox
from sandbox_server.db.models.saves import TaskLargeFilePart, TaskSave, TaskSavePart
from sandbox_server.db.models.tasks import (
    ForgeCheck,
    ForgeWrite,
    PullRequest,
    Task,
    TaskAttempt,
    TaskMessage,
    TaskRun,
)
from sandbox_server.db.models.tenants import ApiKey, Tenant

__all__ = [
    "METADATA",
    "TABLES",
    "ApiKey",
    "Backend",
    "BrowserContext",
    "BrowserDriver",
    "BrowserExtension",
    "BrowserFilePart",
    "BrowserRecord",
    "BrowserSession",
    "Command",
    "CommandOutput",
    "Desktop",
    "DesktopLink",
    "DesktopRecording",
    "DesktopRecordingPart",
    "Event",
    "Forge",
    "ForgeBudget",
    "ForgeCheck",
    "ForgeToken",
    "ForgeWrite",
    "GitPush",
    "GitPushPart",
    "IdempotencyKey",
    "Installation",
    "Job",
    "Login",
    "PullRequest",
    "Repository",
    "Sandbox",
    "Snapshot",
    "Stream",
    "Task",
    "TaskAttempt",
    "TaskLargeFilePart",
    "TaskMessage",
    "TaskRun",
    "TaskSave",
    "TaskSavePart",
    "Template",
    "TemplateBuild",
    "Tenant",
    "Ticket",
    "WebhookDelivery",
]

METADATA = Row.metadata
TABLES = METADATA.tables
