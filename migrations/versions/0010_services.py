"""What stands in a sandbox beside its owner's own work: services with settings, runs of agents, the shipped template."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0010"
down_revision = "0009"

ID = sa.Text(collation="C")
FALSE = sa.text("false")
NONE = sa.text("'{}'")


def upgrade() -> None:
    for table in ("sandboxes", "snapshots", "templates"):
        has_services: sa.Column[bool] = sa.Column(
            "has_services", sa.Boolean(), server_default=FALSE, nullable=False
        )
        op.add_column(table, has_services)
    op.add_column("sandboxes", sa.Column("services_digest", sa.LargeBinary()))
    op.add_column("sandboxes", sa.Column("template_note", sa.Text()))
    op.add_column("sandboxes", sa.Column("awaited_template_id", ID))
    op.add_column(
        "sandboxes",
        sa.Column("awaited_backends", ARRAY(sa.Text()), server_default=NONE, nullable=False),
    )
    op.create_index(
        "sandboxes_awaited_template_id_idx",
        "sandboxes",
        ["awaited_template_id"],
        postgresql_where=sa.text("ended_at IS NULL AND awaited_template_id IS NOT NULL"),
    )
    op.add_column("template_builds", sa.Column("digest", sa.Text()))
    op.add_column("commands", sa.Column("agent", JSONB()))
    _set_kinds("command", "terminal", "service", "agent")


def downgrade() -> None:
    op.execute("DELETE FROM commands WHERE kind = 'agent'")
    op.execute("DELETE FROM jobs WHERE kind IN ('agent-run', 'agent-template', 'services')")
    # Nobody would let them in line any more.
    op.execute(
        "UPDATE sandboxes SET candidates = awaited_backends "
        "WHERE awaited_template_id IS NOT NULL AND ended_at IS NULL"
    )
    _set_kinds("command", "terminal", "service")
    op.drop_column("commands", "agent")
    op.drop_column("template_builds", "digest")
    op.drop_index("sandboxes_awaited_template_id_idx", "sandboxes")
    for name in ("awaited_backends", "awaited_template_id", "template_note", "services_digest"):
        op.drop_column("sandboxes", name)
    for table in ("templates", "snapshots", "sandboxes"):
        op.drop_column(table, "has_services")


def _set_kinds(*kinds: str) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.drop_constraint("commands_kind_check", "commands")
    op.create_check_constraint(op.f("commands_kind_check"), "commands", f"kind IN ({listed})")
