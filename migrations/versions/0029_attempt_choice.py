"""Attempts that an operator chooses among."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column(
        "tasks", sa.Column("choice", sa.Text(), server_default="automatic", nullable=False)
    )
    op.add_column("tasks", sa.Column("wanted_attempt", sa.Integer()))
    op.create_check_constraint(
        op.f("tasks_choice_check"), "tasks", "choice IN ('automatic', 'operator')"
    )


def downgrade() -> None:
    op.drop_constraint(op.f("tasks_choice_check"), "tasks", type_="check")
    op.drop_column("tasks", "wanted_attempt")
    op.drop_column("tasks", "choice")
