from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Document, Id, Row, Switch
from sandbox_server.db.models.forges import Forge
from sandbox_server.db.models.tenants import Tenant


class Repository(Row):
    """A repository of a forge that a tenant works on, with its settings."""

    __tablename__ = "repositories"
    __table_args__ = (
        UniqueConstraint("tenant_id", "forge_id", "external_id"),
        Index(None, "tenant_id", "id"),
        Index(None, "forge_id", "external_id"),
        Index(None, "tenant_id", "full_name", postgresql_where=text("removed_at IS NULL")),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    forge_id: Mapped[Id] = mapped_column(ForeignKey(Forge.id))
    external_id: Mapped[str]
    full_name: Mapped[str]
    default_branch: Mapped[str]
    private: Mapped[Switch]
    url: Mapped[str]
    may_push: Mapped[bool | None]  # the credential, when it was last asked; None: not told
    installation_id: Mapped[str | None]
    settings: Mapped[Document]  # see domain/tasks/repositories.py
    envs_sealed: Mapped[bytes | None]  # variables for setup, checks and agents
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    prepared_snapshot: Mapped[Id | None]  # a snapshot with the checkout and its setup
    prepared_sha: Mapped[str | None]
    prepared_at: Mapped[datetime | None]
    prepared_from: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    preparation: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    prepare_error: Mapped[str | None]  # of the last preparation; see repositories/prepared.py
    trigger_looks: Mapped[Document]  # up to when labels and mentions were read; see tasks/triggers
    triggers_paused_reason: Mapped[str | None]  # after several failed tasks in a row
    removed_at: Mapped[datetime | None]
