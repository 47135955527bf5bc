from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Id, Row, one_of
from sandbox_server.db.models.sandboxes import Sandbox
from sandbox_server.db.models.tenants import ApiKey, Tenant


class Ticket(Row):
    """A short-lived secret for one sandbox, allowed in URLs; only its hash is stored."""

    __tablename__ = "tickets"
    __table_args__ = (
        one_of("scope", "read", "sandboxes", "port", "desktop-view", "desktop-control"),
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
