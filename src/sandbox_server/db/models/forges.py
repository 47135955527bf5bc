from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Count, Id, Row, one_of
from sandbox_server.db.models.tenants import Tenant
from sandbox_server.domain.tasks.forges import DeliveryKind, ForgeAuth, ForgeKind


class Forge(Row):
    """A forge and the credential for it; the secrets are encrypted."""

    __tablename__ = "forges"
    __table_args__ = (
        one_of("kind", *ForgeKind),
        one_of("auth", *ForgeAuth),
        CheckConstraint("(auth = 'app') = (app_id IS NOT NULL)", name="app_id"),
        CheckConstraint("(auth = 'none') = (secret_sealed IS NULL)", name="secret"),
        Index(
            "forges_name_idx",
            "tenant_id",
            "name",
            unique=True,
            postgresql_where=text("removed_at IS NULL"),
        ),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    name: Mapped[str]
    kind: Mapped[str]
    api_url: Mapped[str | None]  # None: a git server without an API
    git_url: Mapped[str]  # repositories are below it
    auth: Mapped[str]
    app_id: Mapped[str | None]
    secret_sealed: Mapped[bytes | None]  # the token, or the private key of the App
    webhook_secret_sealed: Mapped[bytes | None]
    bot_login: Mapped[str | None]  # as whom we write; what it writes starts nothing
    bot_id: Mapped[str | None]
    git_username: Mapped[str | None]  # None: the kind's own
    removed_at: Mapped[datetime | None]  # its secrets are gone; its repositories' tasks name it


class ForgeToken(Row):
    """A token minted for one repository, shared by all servers until it expires."""

    __tablename__ = "forge_tokens"
    __table_args__ = (
        one_of("access", "read", "write", "workflows", "api"),
        Index(None, "expires_at"),
    )

    forge_id: Mapped[Id] = mapped_column(ForeignKey(Forge.id, ondelete="CASCADE"), primary_key=True)
    repository: Mapped[str] = mapped_column(primary_key=True)  # its external id
    access: Mapped[str] = mapped_column(primary_key=True)
    token_sealed: Mapped[bytes]
    expires_at: Mapped[datetime]


class ForgeBudget(Row):
    """The request quota of a credential, as the forge last reported it; all servers honour it."""

    __tablename__ = "forge_budgets"

    forge_id: Mapped[Id] = mapped_column(ForeignKey(Forge.id, ondelete="CASCADE"), primary_key=True)
    account: Mapped[str] = mapped_column(primary_key=True)  # an installation, or "token"
    resource: Mapped[str] = mapped_column(primary_key=True)  # "core", "graphql", …; "writes": ours
    quota: Mapped[int | None]
    remaining: Mapped[int | None]
    reset_at: Mapped[datetime | None]
    paused_until: Mapped[datetime | None]
    paused_reason: Mapped[str | None]
    strikes: Mapped[Count]  # limits reached since the last answer that was none
    writes_minute: Mapped[Count]
    minute_began_at: Mapped[datetime | None]
    writes_hour: Mapped[Count]
    hour_began_at: Mapped[datetime | None]
    last_write_at: Mapped[datetime | None]


class WebhookDelivery(Row):
    """A webhook delivery: stored once, answered, and worked on later."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        one_of("kind", *DeliveryKind),
        UniqueConstraint("forge_id", "delivery_id"),
        UniqueConstraint("forge_id", "digest"),
        Index(None, "received_at"),
        Index(
            "webhook_deliveries_open_idx",
            "forge_id",
            "received_at",
            postgresql_where=text("done_at IS NULL"),
        ),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    forge_id: Mapped[Id] = mapped_column(ForeignKey(Forge.id, ondelete="CASCADE"))
    delivery_id: Mapped[str]  # the forge's; it is not signed
    digest: Mapped[bytes]  # of the body: a recorded delivery is not accepted under another id
    kind: Mapped[str]
    action: Mapped[str]
    repository: Mapped[str | None]  # external id
    repository_name: Mapped[str | None]
    subject: Mapped[str | None]
    actor: Mapped[str | None]
    actor_is_bot: Mapped[bool] = mapped_column(server_default=text("false"))
    body: Mapped[bytes | None]  # as it was received; None: too large
    received_at: Mapped[datetime] = mapped_column(server_default=text("clock_timestamp()"))
    done_at: Mapped[datetime | None]
    outcome: Mapped[str | None]
