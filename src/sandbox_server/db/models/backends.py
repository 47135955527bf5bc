from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Count, Id, Names, Row, Switch, one_of
from sandbox_server.db.models.tenants import Tenant


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
    capabilities: Mapped[Names]
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
    capabilities: Mapped[Names]
    temporary: Mapped[Switch]  # created for one fork, and removed when that has ended
