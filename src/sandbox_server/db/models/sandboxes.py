from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.backends import Backend
from sandbox_server.db.models.columns import (
    Count,
    Document,
    Id,
    Names,
    Row,
    Switch,
    one_of,
)
from sandbox_server.db.models.tenants import Tenant
from sandbox_server.domain.state import OnTimeout, State, Target


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
    capabilities: Mapped[Names]  # those of its template when it was created
    services_digest: Mapped[bytes | None]  # digest of the settings in that file
    resources: Mapped[Document]
    network: Mapped[Document]
    volumes: Mapped[Document]
    # The repository to check out, and how far that is; None: none was requested.
    checkout: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    # Requested settings of its desktop; None: none were requested.
    desktop: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))

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
