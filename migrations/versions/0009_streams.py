"""Commands with their output, how far logs are kept, tickets, and the token of the tool server in a sandbox."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0009"
down_revision = "0008"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
ZERO = sa.text("0")
NOW = sa.text("clock_timestamp()")

LIVING = sa.text("ended_at IS NULL")
ENDED = sa.text("ended_at IS NOT NULL")


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("tools_token_sealed", sa.LargeBinary()))
    for what in ("", "output_"):
        number = sa.Column(
            f"{what}removed_seq", sa.BigInteger(), server_default=ZERO, nullable=False
        )
        op.add_column("streams", number)
        op.add_column("streams", sa.Column(f"{what}removed_at", INSTANT))
    _create_commands()
    _create_command_output()
    _create_tickets()


def _create_commands() -> None:
    op.create_table(
        "commands",
        sa.Column("id", ID, primary_key=True),
        sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column(
            "sandbox_id", ID, sa.ForeignKey("sandboxes.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("kind", sa.Text(), server_default="command", nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("cmd", sa.Text(), nullable=False),
        sa.Column("cwd", sa.Text()),
        sa.Column("run_as", sa.Text()),
        sa.Column("background", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("stdin", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("cols", sa.Integer()),
        sa.Column("rows", sa.Integer()),
        sa.Column("timeout", sa.Interval()),
        sa.Column("state", sa.Text(), server_default="starting", nullable=False),
        sa.Column("state_reason", sa.Text()),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("pid", sa.Integer()),
        sa.Column("expires_at", INSTANT),
        sa.Column("started_at", INSTANT),
        sa.Column("ended_at", INSTANT),
        sa.Column("recorded_by", sa.Text()),
        sa.Column("recorded_until", INSTANT),
        *(
            sa.Column(name, sa.BigInteger(), server_default=ZERO, nullable=False)
            for name in ("last_seq", "stdout_size", "stderr_size", "stdout_cut", "stderr_cut")
        ),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint("kind IN ('command', 'terminal', 'service')", name="kind"),
        sa.CheckConstraint(
            "state IN ('starting', 'running', 'exited', 'timed_out', 'killed', 'failed', 'lost')",
            name="state",
        ),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (state IN ('starting', 'running'))", name="ended_at"
        ),
        postgresql_with={"fillfactor": 70},
    )
    op.create_index("commands_sandbox_id_id_idx", "commands", ["sandbox_id", "id"])
    op.create_index(
        "commands_recorded_until_idx", "commands", ["recorded_until"], postgresql_where=LIVING
    )
    op.create_index(
        "commands_services_idx",
        "commands",
        ["sandbox_id", "name"],
        unique=True,
        postgresql_where=sa.text("kind = 'service' AND ended_at IS NULL"),
    )
    op.create_index("commands_ended_at_idx", "commands", ["ended_at"], postgresql_where=ENDED)


def _create_command_output() -> None:
    op.create_table(
        "command_output",
        sa.Column("sandbox_id", ID, primary_key=True),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column(
            "command_id", ID, sa.ForeignKey("commands.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), server_default=ZERO, nullable=False),
        sa.Column("content", sa.LargeBinary(), server_default=sa.text("''"), nullable=False),
        sa.Column("data", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "type IN ('started', 'stdout', 'stderr', 'resized', 'gap', 'exit')", name="type"
        ),
    )
    # To compress what is kept for a while takes longer than to write it.
    op.execute("ALTER TABLE command_output ALTER COLUMN content SET STORAGE EXTERNAL")
    op.create_index("command_output_command_id_seq_idx", "command_output", ["command_id", "seq"])
    op.create_index("command_output_created_at_idx", "command_output", ["created_at"])
    op.create_index(
        "command_output_resized_idx",
        "command_output",
        ["command_id"],
        unique=True,
        postgresql_where=sa.text("type = 'resized'"),
    )


def _create_tickets() -> None:
    op.create_table(
        "tickets",
        sa.Column("hash", sa.LargeBinary(), primary_key=True),
        sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column("key_id", ID, sa.ForeignKey("api_keys.id"), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("sandbox_id", ID, sa.ForeignKey("sandboxes.id", ondelete="CASCADE")),
        sa.Column("port", sa.Integer()),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint("scope IN ('read', 'sandboxes', 'port')", name="scope"),
        sa.CheckConstraint("(scope = 'port') = (port IS NOT NULL)", name="port"),
    )
    op.create_index("tickets_expires_at_idx", "tickets", ["expires_at"])
    op.create_index("tickets_tenant_id_expires_at_idx", "tickets", ["tenant_id", "expires_at"])


def downgrade() -> None:
    op.drop_table("tickets")
    op.drop_table("command_output")
    op.drop_table("commands")
    for column in ("output_removed_at", "output_removed_seq", "removed_at", "removed_seq"):
        op.drop_column("streams", column)
    op.drop_column("sandboxes", "tools_token_sealed")
