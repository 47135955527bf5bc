"""Writes to a forge that belong to a repository and not to a task."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

ID = sa.Text(collation="C")


def upgrade() -> None:
    op.add_column("forge_writes", sa.Column("repository_id", ID))
    op.execute(
        "UPDATE forge_writes SET repository_id = tasks.repository_id FROM tasks WHERE tasks.id = task_id"
    )
    op.alter_column("forge_writes", "repository_id", nullable=False)
    op.alter_column("forge_writes", "task_id", nullable=True)
    op.create_foreign_key(
        op.f("forge_writes_repository_id_fkey"),
        "forge_writes",
        "repositories",
        ["repository_id"],
        ["id"],
    )
    op.create_index(
        "forge_writes_repository_idx",
        "forge_writes",
        ["repository_id", "kind", "key"],
        unique=True,
        postgresql_where=sa.text("task_id IS NULL"),
    )


def downgrade() -> None:
    op.execute("DELETE FROM forge_writes WHERE task_id IS NULL")
    op.drop_index("forge_writes_repository_idx", "forge_writes")
    op.drop_constraint(op.f("forge_writes_repository_id_fkey"), "forge_writes")
    op.drop_column("forge_writes", "repository_id")
    op.alter_column("forge_writes", "task_id", nullable=False)
