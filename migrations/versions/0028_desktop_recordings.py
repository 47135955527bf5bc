"""Recordings of desktops."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
NOW = sa.text("clock_timestamp()")
ZERO = sa.text("0")


def upgrade() -> None:
    op.create_table(
        "desktop_recordings",
        sa.Column("sandbox_id", ID, nullable=False),
        sa.Column("id", ID, nullable=False),
        sa.Column("fps", sa.Integer(), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("timescale", sa.Integer(), server_default=ZERO, nullable=False),
        sa.Column("copied", sa.BigInteger(), server_default=ZERO, nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default=ZERO, nullable=False),
        sa.Column("copied_at", INSTANT),
        sa.Column("ended_at", INSTANT),
        sa.Column("end_reason", sa.Text()),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["sandbox_id"],
            ["sandboxes.id"],
            name=op.f("desktop_recordings_sandbox_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sandbox_id", "id", name=op.f("desktop_recordings_pkey")),
    )
    op.create_index(
        op.f("desktop_recordings_ended_at_idx"),
        "desktop_recordings",
        ["ended_at"],
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_table(
        "desktop_recording_parts",
        sa.Column("id", ID, nullable=False),
        sa.Column("sandbox_id", ID, nullable=False),
        sa.Column("recording_id", ID, nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("begins", sa.BigInteger(), nullable=False),
        sa.Column("lasts", sa.BigInteger(), nullable=False),
        sa.Column("is_key", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("content_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["sandbox_id", "recording_id"],
            ["desktop_recordings.sandbox_id", "desktop_recordings.id"],
            name="desktop_recording_parts_recording_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("desktop_recording_parts_pkey")),
        sa.UniqueConstraint(
            "sandbox_id", "recording_id", "part", name="desktop_recording_parts_part_key"
        ),
    )


def downgrade() -> None:
    op.drop_table("desktop_recording_parts")
    op.drop_table("desktop_recordings")
