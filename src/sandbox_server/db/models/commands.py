from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Document, Id, Row, Switch, one_of
from sandbox_server.db.models.sandboxes import Sandbox
from sandbox_server.db.models.tenants import Tenant
from sandbox_server.domain.commands import CommandKind, CommandState


class Command(Row):
    """A program in a sandbox with recorded output: a command, a terminal, an execution of code, or a service's log.

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
    code: Mapped[dict[str, Any] | None] = mapped_column(
        JSONB(none_as_null=True)
    )  # executions of code: language and context

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
        one_of("type", "started", "stdout", "stderr", "resized", "result", "error", "gap", "exit"),
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
