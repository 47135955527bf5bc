"""Tasks whose report becomes a comment."""

from alembic import op

revision = "0016"
down_revision = "0015"

_NAME = "tasks_pull_request_check"


def upgrade() -> None:
    op.drop_constraint(op.f(_NAME), "tasks")
    op.create_check_constraint(
        op.f(_NAME), "tasks", "pull_request IN ('draft', 'ready', 'none', 'comment')"
    )


def downgrade() -> None:
    op.execute("UPDATE tasks SET pull_request = 'none' WHERE pull_request = 'comment'")
    op.drop_constraint(op.f(_NAME), "tasks")
    op.create_check_constraint(op.f(_NAME), "tasks", "pull_request IN ('draft', 'ready', 'none')")
