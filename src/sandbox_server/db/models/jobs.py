from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Count, Id, Row
from sandbox_server.db.models.tenants import Tenant


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
