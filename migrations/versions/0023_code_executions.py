"""Executions of code: a kind of command, with results and errors in its log."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0023"
down_revision = "0022"

_KINDS = ("command", "terminal", "service", "agent")
_TYPES = ("started", "stdout", "stderr", "resized", "gap", "exit")


def upgrade() -> None:
    op.add_column("commands", sa.Column("code", JSONB(), nullable=True))
    _replace("commands", "kind", (*_KINDS, "code"))
    _replace("command_output", "type", (*_TYPES[:4], "result", "error", *_TYPES[4:]))


def downgrade() -> None:
    op.execute("DELETE FROM commands WHERE kind = 'code'")
    _replace("command_output", "type", _TYPES)
    _replace("commands", "kind", _KINDS)
    op.drop_column("commands", "code")


def _replace(table: str, column: str, values: tuple[str, ...]) -> None:
    listed = ", ".join(f"'{value}'" for value in values)
    name = op.f(f"{table}_{column}_check")
    op.drop_constraint(name, table)
    op.create_check_constraint(name, table, f"{column} IN ({listed})")
