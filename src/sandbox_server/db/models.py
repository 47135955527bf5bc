from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.columns import Count, Document, Id, Row, Switch, one_of
from sandbox_server.domain.commands import CommandKind, CommandState
from sandbox_server.domain.state import OnTimeout, State, Target


class Tenant(Row):
    __tablename__ = "tenants"
    __table_args__ = (
        CheckConstraint("max_running >= 0", name="max_running"),
        CheckConstraint("max_queued >= 0", name="max_queued"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    max_running: Mapped[int]
    max_queued: Mapped[int]
    defaults: Mapped[Document]
    rules: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'"))


class ApiKey(Row):
    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint("scopes <@ ARRAY['read', 'sandboxes', 'admin']", name="scopes"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id), index=True)
    name: Mapped[str] = mapped_column(server_default="")
    hash: Mapped[bytes] = mapped_column(unique=True)
    prefix: Mapped[str]
    scopes: Mapped[list[str]]
    max_priority: Mapped[Count]
    rate_per_s: Mapped[float | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class Backend(Row):
    __tablename__ = "backends"
    __table_args__ = (
        one_of("state", "unknown", "up", "down"),
        CheckConstraint("capacity >= 0", name="capacity"),
    )

    name: Mapped[str] = mapped_column(primary_key=True)
    capacity: Mapped[int]
    drained: Mapped[Switch]
    state: Mapped[str] = mapped_column(server_default="unknown")
    state_reason: Mapped[str | None]
    seen_at: Mapped[datetime | None]
    failing_since: Mapped[datetime | None]
    strangers: Mapped[Count]  # sandboxes of ours there that no record is about
    busy_until: Mapped[datetime | None]  # it said that it has no room, whatever we count
    paused_takes_place: Mapped[Switch]  # where the memory of paused sandboxes stays in use
    templates_at: Mapped[datetime | None]  # when it last told what templates it has


class Template(Row):
    """A name that sandboxes are created from; a tenant's own, or everybody's."""

    __tablename__ = "templates"
    __table_args__ = (
        Index(
            None,
            "tenant_id",
            "name",
            unique=True,
            postgresql_nulls_not_distinct=True,
            postgresql_where=text("deleted_at IS NULL"),
        ),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id | None] = mapped_column(ForeignKey(Tenant.id))
    name: Mapped[str]
    definition_sealed: Mapped[
        bytes | None
    ]  # None: it was built elsewhere, or comes with the server
    has_services: Mapped[Switch]
    deleted_at: Mapped[datetime | None]


class TemplateBuild(Row):
    """What a template is at one backend: its last build, and whether there is one that can be used."""

    __tablename__ = "template_builds"
    __table_args__ = (one_of("state", "building", "ready", "failed"),)

    template_id: Mapped[Id] = mapped_column(
        ForeignKey(Template.id, ondelete="CASCADE"), primary_key=True
    )
    backend: Mapped[str] = mapped_column(ForeignKey(Backend.name), primary_key=True, index=True)
    number: Mapped[int] = mapped_column(server_default=text("1"))  # which build this is
    force: Mapped[Switch]
    backend_template_id: Mapped[str | None] = mapped_column(index=True)
    backend_build_id: Mapped[str | None]
    state: Mapped[str] = mapped_column(server_default="building")
    state_reason: Mapped[str | None]
    requested_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    started_at: Mapped[datetime | None]
    ready_at: Mapped[datetime | None]  # since when sandboxes can be made from it
    cpu_count: Mapped[int | None]
    memory_mb: Mapped[int | None]
    entries_read: Mapped[Count]
    log_head: Mapped[str] = mapped_column(server_default="")
    log_tail: Mapped[str] = mapped_column(server_default="")
    log_size: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    seen_at: Mapped[datetime | None]
    digest: Mapped[str | None]  # of what a template that comes with the server was built from


class Sandbox(Row):
    __tablename__ = "sandboxes"
    __table_args__ = (
        one_of("state", *State),
        one_of("target", *Target),
        one_of("on_timeout", *OnTimeout),
        CheckConstraint(
            "(ended_at IS NOT NULL) = (state IN ('stopped', 'failed'))", name="ended_at"
        ),
        CheckConstraint("state <> 'paused' OR expires_at IS NULL", name="expires_at"),
        # A tenant's lists, newest first: ids sort by time.
        Index(None, "tenant_id", "id"),
        Index("sandboxes_living_idx", "tenant_id", "id", postgresql_where=text("ended_at IS NULL")),
        Index(None, "tenant_id", "state", "id"),
        Index(None, "tenant_id", "user_id", "id", postgresql_where=text("user_id IS NOT NULL")),
        Index(
            None, "tenant_id", "session_id", "id", postgresql_where=text("session_id IS NOT NULL")
        ),
        Index(
            None,
            "metadata",
            postgresql_using="gin",
            postgresql_ops={"metadata": "jsonb_path_ops"},
        ),
        # Admission: whose turn it is, and how much room is taken; ended sandboxes cost it nothing.
        Index(
            "sandboxes_queue_idx",
            "tenant_id",
            "state",
            text("priority DESC"),
            "queued_at",
            "id",
            postgresql_where=text("target = 'running' AND state IN ('queued', 'paused')"),
        ),
        Index(None, "backend", "state", postgresql_where=text("ended_at IS NULL")),
        Index(
            None,
            "backend",
            "backend_sandbox_id",
            unique=True,
            postgresql_where=text("backend_sandbox_id IS NOT NULL"),
        ),
        Index(None, "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
        Index(
            None,
            "template_id",
            postgresql_where=text("ended_at IS NULL AND template_id IS NOT NULL"),
        ),
        Index(
            None,
            "awaited_template_id",
            postgresql_where=text("ended_at IS NULL AND awaited_template_id IS NOT NULL"),
        ),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    template: Mapped[str]
    template_id: Mapped[Id | None]  # where the name is that of a template of its tenant's own
    awaited_template_id: Mapped[Id | None]  # which is being built, so that nobody may have it yet
    awaited_backends: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    template_note: Mapped[str | None]  # why it is made from another one than the default
    backend: Mapped[str | None] = mapped_column(ForeignKey(Backend.name))
    backend_sandbox_id: Mapped[str | None]
    candidates: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    agent_type: Mapped[str | None]
    user_id: Mapped[str | None]
    session_id: Mapped[str | None]
    # `metadata` is taken by SQLAlchemy.
    labels: Mapped[Document] = mapped_column("metadata")
    envs_sealed: Mapped[bytes | None]
    access_sealed: Mapped[bytes | None]
    tools_token_sealed: Mapped[bytes | None]  # what the services in it ask their callers for
    has_services: Mapped[Switch]  # services that read their settings from a file which we write
    services_digest: Mapped[bytes | None]  # of the settings that are in that file
    resources: Mapped[Document]
    network: Mapped[Document]
    volumes: Mapped[Document]

    state: Mapped[State] = mapped_column(server_default=State.QUEUED)
    state_reason: Mapped[str | None]
    target: Mapped[Target] = mapped_column(server_default=Target.RUNNING)
    wanted: Mapped[int] = mapped_column(server_default=text("1"))
    wish: Mapped[Document]  # who wants the target, and why
    generation: Mapped[Count]
    tried_at: Mapped[datetime | None]  # when its provider was first asked to start it
    silent_since: Mapped[datetime | None]  # it is said to run, and does not answer

    priority: Mapped[Count]
    # Since when it waits for a place: to start, or to resume.
    queued_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    queue_expires_at: Mapped[datetime | None]

    started_at: Mapped[datetime | None]
    last_activity_at: Mapped[datetime | None]
    awake_until: Mapped[datetime | None]
    idle_timeout: Mapped[timedelta | None]
    timeout: Mapped[timedelta]
    expires_at: Mapped[datetime | None]
    remaining: Mapped[timedelta | None]
    retain_until: Mapped[datetime | None]
    provider_until: Mapped[datetime | None]
    on_timeout: Mapped[OnTimeout] = mapped_column(server_default=OnTimeout.PAUSE)
    auto_resume: Mapped[bool] = mapped_column(server_default=text("true"))
    ended_at: Mapped[datetime | None]


class Command(Row):
    """A program in a sandbox whose output is kept: a command, a terminal, or a service's log.

    One server at a time records it, as long as its lease lasts; any other goes on where that one ends.
    """

    __tablename__ = "commands"
    __table_args__ = (
        one_of("kind", *CommandKind),
        one_of("state", *CommandState),
        CheckConstraint("(ended_at IS NULL) = (state IN ('starting', 'running'))", name="ended_at"),
        Index(None, "sandbox_id", "id"),
        Index(None, "recorded_until", postgresql_where=text("ended_at IS NULL")),
        # A service's log is recorded once, however many servers want it.
        Index(
            "commands_services_idx",
            "sandbox_id",
            "name",
            unique=True,
            postgresql_where=text("kind = 'service' AND ended_at IS NULL"),
        ),
        Index(None, "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
        {"postgresql_with": {"fillfactor": 70}},
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    sandbox_id: Mapped[Id] = mapped_column(ForeignKey(Sandbox.id, ondelete="CASCADE"))
    kind: Mapped[CommandKind] = mapped_column(server_default=CommandKind.COMMAND)
    name: Mapped[str | None]  # of the service
    cmd: Mapped[str]
    cwd: Mapped[str | None]
    user: Mapped[str | None] = mapped_column("run_as")
    background: Mapped[Switch]
    stdin: Mapped[Switch]
    cols: Mapped[int | None]
    rows: Mapped[int | None]
    timeout: Mapped[timedelta | None]
    agent: Mapped[dict[str, Any] | None] = mapped_column(
        JSONB(none_as_null=True)
    )  # of a run of one: which, and what follows

    state: Mapped[CommandState] = mapped_column(server_default=CommandState.STARTING)
    state_reason: Mapped[str | None]
    exit_code: Mapped[int | None]
    pid: Mapped[int | None]
    expires_at: Mapped[datetime | None]  # when it is killed
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    recorded_by: Mapped[str | None]
    recorded_until: Mapped[datetime | None]
    last_seq: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    # Bytes that each stream wrote, as far as they were received, and what of them is not kept.
    stdout_size: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    stderr_size: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    stdout_cut: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    stderr_cut: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))


class CommandOutput(Row):
    """A piece of what a command wrote, or something that happened to it, in the numbers of its tenant's log."""

    __tablename__ = "command_output"
    __table_args__ = (
        one_of("type", "started", "stdout", "stderr", "resized", "gap", "exit"),
        Index(None, "command_id", "seq"),
        Index(None, "created_at"),
        Index(
            "command_output_resized_idx",
            "command_id",
            unique=True,
            postgresql_where=text("type = 'resized'"),
        ),
    )

    sandbox_id: Mapped[Id] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    command_id: Mapped[Id] = mapped_column(ForeignKey(Command.id, ondelete="CASCADE"))
    type: Mapped[str]
    offset: Mapped[int] = mapped_column("start", BigInteger, server_default=text("0"))
    content: Mapped[bytes] = mapped_column(server_default=text("''"))
    data: Mapped[Document]


class Ticket(Row):
    """A key for one sandbox and a while, which may stand in a URL; only its hash is kept."""

    __tablename__ = "tickets"
    __table_args__ = (
        one_of("scope", "read", "sandboxes", "port"),
        CheckConstraint("(scope = 'port') = (port IS NOT NULL)", name="port"),
        Index(None, "expires_at"),
        Index(None, "tenant_id", "expires_at"),
    )

    hash: Mapped[bytes] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    key_id: Mapped[Id] = mapped_column(ForeignKey(ApiKey.id))  # it ends with the key that made it
    scope: Mapped[str]
    sandbox_id: Mapped[Id | None] = mapped_column(ForeignKey(Sandbox.id, ondelete="CASCADE"))
    port: Mapped[int | None]
    expires_at: Mapped[datetime]


class Login(Row):
    """A browser that was signed in with a key, until then; of what it keeps, in a cookie, only the hash is here."""

    __tablename__ = "logins"
    __table_args__ = (Index(None, "expires_at"), Index(None, "key_id", "id"))

    id: Mapped[Id] = mapped_column(primary_key=True)
    hash: Mapped[bytes] = mapped_column(unique=True)
    key_id: Mapped[Id] = mapped_column(ForeignKey(ApiKey.id))  # it ends with that
    expires_at: Mapped[datetime]


class Snapshot(Row):
    """A sandbox as it was at one moment; sandboxes are created from it at its backend."""

    __tablename__ = "snapshots"
    __table_args__ = (
        one_of("state", "creating", "ready", "failed", "deleting"),
        Index(None, "tenant_id", "sandbox_id", "id"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    sandbox_id: Mapped[Id]
    backend: Mapped[str] = mapped_column(ForeignKey(Backend.name))
    backend_snapshot_id: Mapped[str | None]
    name: Mapped[str | None]
    state: Mapped[str] = mapped_column(server_default="creating")
    state_reason: Mapped[str | None]
    has_services: Mapped[Switch]
    temporary: Mapped[Switch]  # made for one fork, and of no use once that has ended


class Job(Row):
    """What is to be done about a subject, when, and who is at it."""

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("kind", "subject"),
        Index(None, "run_at", "id", postgresql_where=text("run_at IS NOT NULL")),
        Index(None, "dead_at", postgresql_where=text("dead_at IS NOT NULL")),
        # A claim and a heartbeat write no indexed column: with room on the page they write no index.
        {"postgresql_with": {"fillfactor": 70}},
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    kind: Mapped[str]
    subject: Mapped[str]
    run_at: Mapped[datetime | None]
    woken_at: Mapped[datetime | None]
    leased_by: Mapped[str | None]
    leased_until: Mapped[datetime | None]
    attempts: Mapped[Count]
    last_error: Mapped[str | None]
    dead_at: Mapped[datetime | None]


class Stream(Row):
    """The counter of a tenant's log, of events and output; its row lock makes commit order the order of numbers."""

    __tablename__ = "streams"

    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id), primary_key=True)
    next_seq: Mapped[int] = mapped_column(BigInteger, server_default=text("1"))
    # The last event that was removed since it was too old, and when it happened.
    removed_seq: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    removed_at: Mapped[datetime | None]
    # The last number of a command that was removed with its output, and when it ended.
    output_removed_seq: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    output_removed_at: Mapped[datetime | None]


class Event(Row):
    """Something that happened; it outlives the sandbox that it happened to."""

    __tablename__ = "events"
    __table_args__ = (
        Index(
            None, "tenant_id", "sandbox_id", "seq", postgresql_where=text("sandbox_id IS NOT NULL")
        ),
        Index(None, "created_at"),
    )

    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    sandbox_id: Mapped[Id | None]
    type: Mapped[str]
    data: Mapped[Document]


class IdempotencyKey(Row):
    __tablename__ = "idempotency"
    __table_args__ = (Index(None, "created_at"),)

    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[bytes]
    resource: Mapped[str]  # what was created: a sandbox, a snapshot, ...
    resource_id: Mapped[Id]


class Installation(Row):
    """Who this database belongs to; there is one row at most."""

    __tablename__ = "installation"
    __table_args__ = (CheckConstraint("singleton", name="singleton"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    encryption_key_id: Mapped[str | None]
    engine: Mapped[str | None]  # which engine `local` is, where it is one of a server's own
    singleton: Mapped[bool] = mapped_column(server_default=text("true"), unique=True)


METADATA = Row.metadata
TABLES = METADATA.tables
