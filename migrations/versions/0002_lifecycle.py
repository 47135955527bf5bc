"""What admission, reconciliation, snapshots and template builds keep."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
EMPTY = sa.text("'{}'")
FALSE = sa.text("false")


def index_queue(where: str) -> None:
    op.drop_index("sandboxes_queue_idx", "sandboxes")
    op.create_index(
        "sandboxes_queue_idx",
        "sandboxes",
        ["tenant_id", sa.literal_column("priority DESC"), "queued_at", "id"],
        postgresql_where=sa.text(where),
    )


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("name", sa.Text(), server_default="", nullable=False))

    op.add_column("backends", sa.Column("state_reason", sa.Text()))
    op.add_column("backends", sa.Column("busy_until", INSTANT))
    op.add_column(
        "backends",
        sa.Column("paused_takes_place", sa.Boolean(), server_default=FALSE, nullable=False),
    )

    op.add_column("template_builds", sa.Column("state_reason", sa.Text()))
    op.add_column("template_builds", sa.Column("cpu_count", sa.Integer()))
    op.add_column("template_builds", sa.Column("memory_mb", sa.Integer()))
    op.add_column(
        "template_builds", sa.Column("spec", JSONB(), server_default=EMPTY, nullable=False)
    )
    op.add_column("template_builds", sa.Column("log", sa.Text(), server_default="", nullable=False))
    op.add_column("template_builds", sa.Column("seen_at", INSTANT))

    op.add_column(
        "sandboxes",
        sa.Column("candidates", sa.ARRAY(sa.Text()), server_default=EMPTY, nullable=False),
    )
    op.add_column("sandboxes", sa.Column("volumes", JSONB(), server_default=EMPTY, nullable=False))
    op.add_column("sandboxes", sa.Column("wish", JSONB(), server_default=EMPTY, nullable=False))
    op.add_column("sandboxes", sa.Column("tried_at", INSTANT))
    op.add_column("sandboxes", sa.Column("silent_since", INSTANT))
    index_queue("target = 'running' AND state IN ('queued', 'paused')")

    op.drop_column("idempotency", "sandbox_id")
    op.execute("DELETE FROM idempotency")
    op.add_column("idempotency", sa.Column("resource", sa.Text(), nullable=False))
    op.add_column("idempotency", sa.Column("resource_id", ID, nullable=False))

    op.create_table(
        "snapshots",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("sandbox_id", ID, nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("backend_snapshot_id", sa.Text()),
        sa.Column("name", sa.Text()),
        sa.Column("state", sa.Text(), server_default="creating", nullable=False),
        sa.Column("state_reason", sa.Text()),
        sa.Column("temporary", sa.Boolean(), server_default=FALSE, nullable=False),
        sa.Column(
            "created_at", INSTANT, server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint(
            "state IN ('creating', 'ready', 'failed', 'deleting')",
            name=op.f("snapshots_state_check"),
        ),
        sa.ForeignKeyConstraint(["backend"], ["backends.name"], name="snapshots_backend_fkey"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="snapshots_tenant_id_fkey"),
        sa.PrimaryKeyConstraint("id", name="snapshots_pkey"),
    )
    op.create_index(
        "snapshots_tenant_id_sandbox_id_id_idx", "snapshots", ["tenant_id", "sandbox_id", "id"]
    )


def downgrade() -> None:
    op.drop_table("snapshots")

    op.execute("DELETE FROM idempotency")
    op.drop_column("idempotency", "resource_id")
    op.drop_column("idempotency", "resource")
    op.add_column("idempotency", sa.Column("sandbox_id", ID, nullable=False))
    op.create_foreign_key(
        "idempotency_sandbox_id_fkey",
        "idempotency",
        "sandboxes",
        ["sandbox_id"],
        ["id"],
        ondelete="CASCADE",
    )
    op.create_index("idempotency_sandbox_id_idx", "idempotency", ["sandbox_id"])

    index_queue("state = 'queued'")
    for column in ("silent_since", "tried_at", "wish", "volumes", "candidates"):
        op.drop_column("sandboxes", column)
    for column in ("seen_at", "log", "spec", "memory_mb", "cpu_count", "state_reason"):
        op.drop_column("template_builds", column)
    for column in ("paused_takes_place", "busy_until", "state_reason"):
        op.drop_column("backends", column)
    op.drop_column("api_keys", "name")
