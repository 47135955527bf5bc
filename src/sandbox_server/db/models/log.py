from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Document, Id, Row
from sandbox_server.db.models.tenants import Tenant


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
        Index(None, "tenant_id", "task_id", "seq", postgresql_where=text("task_id IS NOT NULL")),
        Index(None, "created_at"),
    )

    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    sandbox_id: Mapped[Id | None]
    task_id: Mapped[Id | None]
    type: Mapped[str]
    data: Mapped[Document]
