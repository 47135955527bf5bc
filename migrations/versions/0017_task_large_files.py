"""Contents of Git LFS that the saves of tasks point to."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

ID = sa.Text(collation="C")


def upgrade() -> None:
    op.create_table(
        "task_large_file_parts",
        sa.Column("id", ID, nullable=False),
        sa.Column("task_id", ID, nullable=False),
        sa.Column("oid", sa.Text(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("content_sealed", sa.LargeBinary(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["tasks.id"],
            name=op.f("task_large_file_parts_task_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("task_large_file_parts_pkey")),
        sa.UniqueConstraint(
            "task_id", "oid", "part", name=op.f("task_large_file_parts_task_id_oid_part_key")
        ),
    )
    op.add_column(
        "task_saves",
        sa.Column(
            "large_files", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
    )


def downgrade() -> None:
    op.drop_column("task_saves", "large_files")
    op.drop_table("task_large_file_parts")
