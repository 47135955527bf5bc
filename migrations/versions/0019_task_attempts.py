"""Attempts: several agents work on one task side by side."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
NOW = sa.text("clock_timestamp()")
ZERO = sa.text("0")
DOCUMENT = postgresql.JSONB(astext_type=sa.Text())
STATES = ("queued", "working", "checking", "finished", "chosen", "not-chosen", "cancelled")


def upgrade() -> None:
    op.add_column("tasks", _count("attempts"))
    op.add_column("tasks", sa.Column("chosen_attempt", sa.Integer()))
    op.add_column("tasks", sa.Column("attempts_snapshot", ID))
    op.add_column("task_saves", _count("attempt"))
    op.add_column("task_runs", _count("attempt"))
    op.add_column(
        "task_runs",
        sa.Column("told", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
    )
    _replace_open_runs("task_id", "attempt")
    op.create_table(
        "task_attempts",
        sa.Column("task_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("agent", sa.Text()),
        sa.Column("agent_command", sa.Text()),
        sa.Column("model", sa.Text()),
        sa.Column("state", sa.Text(), server_default="queued", nullable=False),
        sa.Column("state_at", INSTANT, server_default=NOW, nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("awaits", DOCUMENT),
        _count("generation"),
        _count("sandboxes"),
        sa.Column("sandbox_id", ID),
        sa.Column("sandbox_ready", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        _count("runs"),
        sa.Column("head_sha", sa.Text()),
        sa.Column("checks", sa.Text()),
        sa.Column("report", DOCUMENT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("session_id", sa.Text()),
        sa.Column("spent_usd", sa.Float(), server_default=ZERO, nullable=False),
        _count("files"),
        _count("added"),
        _count("removed"),
        sa.Column("ended_at", INSTANT),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "state IN (" + ", ".join(f"'{state}'" for state in STATES) + ")",
            name=op.f("task_attempts_state_check"),
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["tasks.id"],
            name=op.f("task_attempts_task_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("task_id", "number", name=op.f("task_attempts_pkey")),
    )
    op.create_index(
        op.f("task_attempts_sandbox_id_idx"),
        "task_attempts",
        ["sandbox_id"],
        postgresql_where=sa.text("sandbox_id IS NOT NULL"),
    )


def downgrade() -> None:
    op.execute("DELETE FROM jobs WHERE kind = 'task-attempt'")
    op.drop_table("task_attempts")
    for table in ("task_saves", "task_runs"):
        # Of attempts that were not chosen: without the column they would be the task's own.
        op.execute(
            f"DELETE FROM {table} USING tasks WHERE tasks.id = {table}.task_id"  # noqa: S608
            f" AND {table}.attempt > 0 AND {table}.attempt IS DISTINCT FROM tasks.chosen_attempt"
        )
    _replace_open_runs("task_id")
    op.drop_column("task_runs", "told")
    for table in ("task_runs", "task_saves"):
        op.drop_column(table, "attempt")
    for column in ("attempts_snapshot", "chosen_attempt", "attempts"):
        op.drop_column("tasks", column)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), server_default=ZERO, nullable=False)


def _replace_open_runs(*columns: str) -> None:
    op.drop_index("task_runs_open_idx", table_name="task_runs")
    op.create_index(
        "task_runs_open_idx",
        "task_runs",
        list(columns),
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
