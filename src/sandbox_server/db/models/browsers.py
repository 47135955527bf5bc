from datetime import datetime, timedelta

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Document, Id, Row, Switch, one_of
from sandbox_server.db.models.tenants import Tenant
from sandbox_server.domain.computers.browsers import SessionState


class BrowserSession(Row):
    """A session of a browser, which has a sandbox of its own."""

    __tablename__ = "browser_sessions"
    __table_args__ = (
        one_of("state", *SessionState),
        CheckConstraint(
            "(ended_at IS NOT NULL) = (state IN ('completed', 'error', 'timed_out'))",
            name="ended_at",
        ),
        Index(None, "tenant_id", "id"),
        Index(None, "sandbox_id", unique=True),
        Index(None, "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
        # One session at a time may write to a context.
        Index(
            None,
            "context_id",
            unique=True,
            postgresql_where=text("context_persist AND finished_at IS NULL"),
        ),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)  # a UUID of version 7
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    key_id: Mapped[Id]
    sandbox_id: Mapped[Id]
    state: Mapped[SessionState] = mapped_column(server_default=SessionState.PENDING)
    state_reason: Mapped[str | None]
    keep_alive: Mapped[Switch]
    timeout: Mapped[timedelta]
    labels: Mapped[Document] = mapped_column("metadata")
    settings: Mapped[Document]
    connect_by: Mapped[datetime | None]  # until a driver has connected
    expires_at: Mapped[datetime | None]
    driven_at: Mapped[datetime | None]  # when the first driver connected
    left_at: Mapped[datetime | None]  # when the last driver left
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    finished_at: Mapped[
        datetime | None
    ]  # when its files had been kept, and its sandbox was given up
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    proxy_bytes: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    context_id: Mapped[Id | None]
    context_persist: Mapped[Switch]
    downloads: Mapped[Document]  # names of downloads by their GUID
    pages: Mapped[Document]  # numbers of pages by the ids of their targets
    recorder_id: Mapped[Id | None]  # the server that records the pages
    recorder_until: Mapped[datetime | None]


class BrowserDriver(Row):
    """A connected driver of a session; a server extends the rows of its own connections."""

    __tablename__ = "browser_drivers"
    __table_args__ = (Index(None, "session_id"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    session_id: Mapped[Id] = mapped_column(ForeignKey(BrowserSession.id, ondelete="CASCADE"))
    until: Mapped[datetime]


class BrowserContext(Row):
    """A profile of a browser, from which sessions start."""

    __tablename__ = "browser_contexts"
    __table_args__ = (Index(None, "tenant_id", "id"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    name: Mapped[str | None]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class BrowserExtension(Row):
    """An extension that sessions load."""

    __tablename__ = "browser_extensions"
    __table_args__ = (Index(None, "tenant_id", "id"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    file_name: Mapped[str]


class BrowserFilePart(Row):
    """A part of the file of a context (its profile), an extension or a session (its downloads), encrypted."""

    __tablename__ = "browser_file_parts"
    __table_args__ = (
        UniqueConstraint("owner_id", "part", name="browser_file_parts_owner_id_part_key"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    owner_id: Mapped[Id]
    part: Mapped[int]
    content_sealed: Mapped[bytes]


class BrowserRecord(Row):
    """A part of the log or of the recording of a session, encrypted."""

    __tablename__ = "browser_records"
    __table_args__ = (
        one_of("kind", "messages", "entries", "frames"),
        Index(None, "session_id", "kind", "id"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    session_id: Mapped[Id] = mapped_column(ForeignKey(BrowserSession.id, ondelete="CASCADE"))
    kind: Mapped[str]
    page: Mapped[int | None]
    size: Mapped[int]
    first_ms: Mapped[int] = mapped_column(BigInteger)
    last_ms: Mapped[int] = mapped_column(BigInteger)
    content_sealed: Mapped[bytes]
