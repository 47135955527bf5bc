"""What it takes to build templates, and to know where they are."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0007"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
ZERO = sa.text("0")
NOW = sa.text("clock_timestamp()")

LIVING = sa.text("ended_at IS NULL AND template_id IS NOT NULL")


def upgrade() -> None:
    op.add_column("templates", sa.Column("definition_sealed", sa.LargeBinary()))
    op.add_column("templates", sa.Column("deleted_at", INSTANT))
    op.drop_constraint("templates_tenant_id_name_key", "templates")
    op.create_index(
        "templates_tenant_id_name_idx",
        "templates",
        ["tenant_id", "name"],
        unique=True,
        postgresql_nulls_not_distinct=True,
        postgresql_where=sa.text("deleted_at IS NULL"),
    )

    op.drop_column("template_builds", "spec")
    op.drop_column("template_builds", "log")
    for name, server_default in {"number": sa.text("1"), "entries_read": ZERO}.items():
        column = sa.Column(name, sa.Integer(), server_default=server_default, nullable=False)
        op.add_column("template_builds", column)
    op.add_column(
        "template_builds",
        sa.Column("force", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )
    op.add_column("template_builds", sa.Column("backend_build_id", sa.Text()))
    op.add_column(
        "template_builds", sa.Column("requested_at", INSTANT, server_default=NOW, nullable=False)
    )
    op.add_column("template_builds", sa.Column("started_at", INSTANT))
    op.add_column("template_builds", sa.Column("ready_at", INSTANT))
    for name in ("log_head", "log_tail"):
        op.add_column(
            "template_builds", sa.Column(name, sa.Text(), server_default="", nullable=False)
        )
    op.add_column(
        "template_builds",
        sa.Column("log_size", sa.BigInteger(), server_default=ZERO, nullable=False),
    )
    op.create_index(
        "template_builds_backend_template_id_idx", "template_builds", ["backend_template_id"]
    )
    op.execute("UPDATE template_builds SET ready_at = created_at WHERE state = 'ready'")

    op.add_column("backends", sa.Column("templates_at", INSTANT))
    op.add_column("sandboxes", sa.Column("template_id", ID))
    op.create_index(
        "sandboxes_template_id_idx", "sandboxes", ["template_id"], postgresql_where=LIVING
    )


def downgrade() -> None:
    op.drop_index("sandboxes_template_id_idx", "sandboxes")
    op.drop_column("sandboxes", "template_id")
    op.drop_column("backends", "templates_at")

    op.drop_index("template_builds_backend_template_id_idx", "template_builds")
    for column in (
        *("log_size", "log_tail", "log_head", "ready_at", "started_at", "requested_at"),
        *("backend_build_id", "force", "entries_read", "number"),
    ):
        op.drop_column("template_builds", column)
    op.add_column("template_builds", sa.Column("log", sa.Text(), server_default="", nullable=False))
    op.add_column(
        "template_builds",
        sa.Column("spec", JSONB(), server_default=sa.text("'{}'"), nullable=False),
    )

    op.execute("DELETE FROM templates WHERE deleted_at IS NOT NULL")
    op.drop_index("templates_tenant_id_name_idx", "templates")
    op.create_unique_constraint(
        "templates_tenant_id_name_key",
        "templates",
        ["tenant_id", "name"],
        postgresql_nulls_not_distinct=True,
    )
    op.drop_column("templates", "deleted_at")
    op.drop_column("templates", "definition_sealed")
