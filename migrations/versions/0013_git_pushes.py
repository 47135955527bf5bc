"""Pushes from sandboxes: forwarded, or kept until their forge answers."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
NOW = sa.text("clock_timestamp()")


def upgrade() -> None:
    op.create_table(
        "git_pushes",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("repository_id", ID, nullable=False),
        sa.Column("sandbox_id", ID, nullable=False),
        sa.Column("task_id", ID),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("old_sha", sa.Text()),
        sa.Column("new_sha", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("is_accepted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", INSTANT),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "state IN ('pushed', 'kept', 'superseded', 'refused')",
            name=op.f("git_pushes_state_check"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("git_pushes_tenant_id_fkey")
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("git_pushes_repository_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("git_pushes_pkey")),
    )
    op.create_index(
        op.f("git_pushes_repository_id_branch_new_sha_idx"),
        "git_pushes",
        ["repository_id", "branch", "new_sha"],
    )
    op.create_index(
        "git_pushes_kept_idx",
        "git_pushes",
        ["repository_id", "branch"],
        unique=True,
        postgresql_where=sa.text("state = 'kept'"),
    )
    op.create_table(
        "git_push_parts",
        sa.Column("id", ID, nullable=False),
        sa.Column("push_id", ID, nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("content_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["push_id"],
            ["git_pushes.id"],
            name=op.f("git_push_parts_push_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("git_push_parts_pkey")),
        sa.UniqueConstraint("push_id", "part", name=op.f("git_push_parts_push_id_part_key")),
    )


def downgrade() -> None:
    op.execute("DELETE FROM jobs WHERE kind = 'git-push'")
    op.drop_table("git_push_parts")
    op.drop_table("git_pushes")
