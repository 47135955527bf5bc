from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Count, Document, Id, Row


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
    computers_sealed: Mapped[bytes | None]
    """Defaults of desktops, browsers and MCP servers, which contain passwords."""


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
