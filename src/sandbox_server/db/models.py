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
    strangers: Mapped[Count]  # its sandboxes without a row here
    busy_until: Mapped[datetime | None]  # the provider reported that it is full
    paused_takes_place: Mapped[Switch]  # paused sandboxes keep their memory
    templates_at: Mapped[datetime | None]  # last listing of its templates


class Template(Row):
    """A template, of a tenant or shared."""

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
    definition_sealed: Mapped[bytes | None]  # None: built elsewhere, or bundled with the server
    has_services: Mapped[Switch]
    deleted_at: Mapped[datetime | None]


class TemplateBuild(Row):
    """A template at one backend: its last build, and whether it can be used."""

    __tablename__ = "template_builds"
    __table_args__ = (one_of("state", "building", "ready", "failed"),)

    template_id: Mapped[Id] = mapped_column(
        ForeignKey(Template.id, ondelete="CASCADE"), primary_key=True
    )
    backend: Mapped[str] = mapped_column(ForeignKey(Backend.name), primary_key=True, index=True)
    number: Mapped[int] = mapped_column(server_default=text("1"))  # id of the build
    force: Mapped[Switch]
    backend_template_id: Mapped[str | None] = mapped_column(index=True)
    backend_build_id: Mapped[str | None]
    state: Mapped[str] = mapped_column(server_default="building")
    state_reason: Mapped[str | None]
    requested_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    started_at: Mapped[datetime | None]
    ready_at: Mapped[datetime | None]  # usable since
    cpu_count: Mapped[int | None]
    memory_mb: Mapped[int | None]
    entries_read: Mapped[Count]
    log_head: Mapped[str] = mapped_column(server_default="")
    log_tail: Mapped[str] = mapped_column(server_default="")
    log_size: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    seen_at: Mapped[datetime | None]
    digest: Mapped[str | None]  # digest of a bundled template's files


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
        # Lists of a tenant, newest first: ids sort by time.
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
        # Admission: queue order and used slots; ended sandboxes are not in these indexes.
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
    template_id: Mapped[Id | None]  # if it is a template of its tenant
    awaited_template_id: Mapped[Id | None]  # the template whose build it waits for
    awaited_backends: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    template_note: Mapped[str | None]  # why another template than the default is used
    backend: Mapped[str | None] = mapped_column(ForeignKey(Backend.name))
    backend_sandbox_id: Mapped[str | None]
    candidates: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    agent_type: Mapped[str | None]
    user_id: Mapped[str | None]
    session_id: Mapped[str | None]
    # `metadata` is reserved by SQLAlchemy.
    labels: Mapped[Document] = mapped_column("metadata")
    envs_sealed: Mapped[bytes | None]
    access_sealed: Mapped[bytes | None]
    tools_token_sealed: Mapped[bytes | None]  # the token of its services
    has_services: Mapped[Switch]  # services with a settings file written by us
    services_digest: Mapped[bytes | None]  # digest of the settings in that file
    resources: Mapped[Document]
    network: Mapped[Document]
    volumes: Mapped[Document]

    state: Mapped[State] = mapped_column(server_default=State.QUEUED)
    state_reason: Mapped[str | None]
    target: Mapped[Target] = mapped_column(server_default=Target.RUNNING)
    wanted: Mapped[int] = mapped_column(server_default=text("1"))
    wish: Mapped[Document]  # cause and reason of the target
    generation: Mapped[Count]
    tried_at: Mapped[datetime | None]  # first create request to the provider
    silent_since: Mapped[datetime | None]  # reported as running, but does not respond

    priority: Mapped[Count]
    # Waiting for a slot since, to start or to resume.
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
    """A program in a sandbox with recorded output: a command, a terminal, or a service's log.

    One server records it while it holds the lease; any other continues after the lease expires.
    """

    __tablename__ = "commands"
    __table_args__ = (
        one_of("kind", *CommandKind),
        one_of("state", *CommandState),
        CheckConstraint("(ended_at IS NULL) = (state IN ('starting', 'running'))", name="ended_at"),
        Index(None, "sandbox_id", "id"),
        Index(None, "recorded_until", postgresql_where=text("ended_at IS NULL")),
        # At most one recording of a service's log.
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
    name: Mapped[str | None]  # name of the service
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
    )  # agent runs: the agent and what to do at the end

    state: Mapped[CommandState] = mapped_column(server_default=CommandState.STARTING)
    state_reason: Mapped[str | None]
    exit_code: Mapped[int | None]
    pid: Mapped[int | None]
    expires_at: Mapped[datetime | None]  # deadline, after which it is killed
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    recorded_by: Mapped[str | None]
    recorded_until: Mapped[datetime | None]
    last_seq: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    # Bytes received of each stream, and the range that is not kept.
    stdout_size: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    stderr_size: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    stdout_cut: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    stderr_cut: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))


class CommandOutput(Row):
    """A piece of a command's output or an event of it, numbered in its tenant's log."""

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
    """A short-lived secret for one sandbox, allowed in URLs; only its hash is stored."""

    __tablename__ = "tickets"
    __table_args__ = (
        one_of("scope", "read", "sandboxes", "port"),
        CheckConstraint("(scope = 'port') = (port IS NOT NULL)", name="port"),
        Index(None, "expires_at"),
        Index(None, "tenant_id", "expires_at"),
    )

    hash: Mapped[bytes] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    key_id: Mapped[Id] = mapped_column(
        ForeignKey(ApiKey.id)
    )  # revoked with the key that created it
    scope: Mapped[str]
    sandbox_id: Mapped[Id | None] = mapped_column(ForeignKey(Sandbox.id, ondelete="CASCADE"))
    port: Mapped[int | None]
    expires_at: Mapped[datetime]


class Login(Row):
    """A login of a browser with a key; only the hash of its cookie is stored."""

    __tablename__ = "logins"
    __table_args__ = (Index(None, "expires_at"), Index(None, "key_id", "id"))

    id: Mapped[Id] = mapped_column(primary_key=True)
    hash: Mapped[bytes] = mapped_column(unique=True)
    key_id: Mapped[Id] = mapped_column(ForeignKey(ApiKey.id))  # revoked with the key
    expires_at: Mapped[datetime]


class Snapshot(Row):
    """A snapshot of a sandbox; sandboxes are created from it at the same backend."""

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
    temporary: Mapped[Switch]  # created for one fork, and removed when that has ended


class Job(Row):
    """Work for a subject: when it is due, and which server has leased it."""

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("kind", "subject"),
        Index(None, "run_at", "id", postgresql_where=text("run_at IS NOT NULL")),
        Index(None, "dead_at", postgresql_where=text("dead_at IS NOT NULL")),
        # Claims and heartbeats change no indexed column: HOT updates, with free space on the page.
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
    """Counter of a tenant's log of events and output; its row lock makes numbers follow commit order."""

    __tablename__ = "streams"

    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id), primary_key=True)
    next_seq: Mapped[int] = mapped_column(BigInteger, server_default=text("1"))
    # Number and time of the last event that was removed by retention.
    removed_seq: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    removed_at: Mapped[datetime | None]
    # Last number and end of the last command that was removed by retention.
    output_removed_seq: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    output_removed_at: Mapped[datetime | None]


class Event(Row):
    """An event; it outlives its sandbox."""

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
    resource: Mapped[str]  # kind of the created resource: sandbox, snapshot, …
    resource_id: Mapped[Id]


class Installation(Row):
    """Identity of the installation; at most one row."""

    __tablename__ = "installation"
    __table_args__ = (CheckConstraint("singleton", name="singleton"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    encryption_key_id: Mapped[str | None]
    engine: Mapped[str | None]  # identity of the engine behind `local`
    singleton: Mapped[bool] = mapped_column(server_default=text("true"), unique=True)


METADATA = Row.metadata
TABLES = METADATA.tables
