"""Desktops: settings, control, links."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0025"
down_revision = "0024"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
NOW = sa.text("clock_timestamp()")
SCOPES = ("read", "sandboxes", "port")
SCOPES_OF_DESKTOPS = ("desktop-view", "desktop-control")


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("desktop", JSONB()))
    _replace_ticket_scopes(*SCOPES, *SCOPES_OF_DESKTOPS)
    op.create_table(
        "desktops",
        sa.Column("sandbox_id", ID, nullable=False),
        sa.Column("holder", sa.Text(), server_default="agent", nullable=False),
        sa.Column("holder_link_id", ID),
        sa.Column("holder_name", sa.Text()),
        sa.Column("held_since", INSTANT),
        sa.Column("held_until", INSTANT),
        sa.Column("version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("applied_version", sa.Integer()),
        sa.Column("applied_run", INSTANT),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint("holder IN ('agent', 'person')", name=op.f("desktops_holder_check")),
        sa.ForeignKeyConstraint(
            ["sandbox_id"],
            ["sandboxes.id"],
            name=op.f("desktops_sandbox_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sandbox_id", name=op.f("desktops_pkey")),
    )
    op.create_table(
        "desktop_links",
        sa.Column("id", ID, nullable=False),
        sa.Column("sandbox_id", ID, nullable=False),
        sa.Column("ticket_hash", sa.LargeBinary(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint("mode IN ('view', 'control')", name=op.f("desktop_links_mode_check")),
        sa.ForeignKeyConstraint(
            ["sandbox_id"],
            ["sandboxes.id"],
            name=op.f("desktop_links_sandbox_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["ticket_hash"],
            ["tickets.hash"],
            name=op.f("desktop_links_ticket_hash_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("desktop_links_pkey")),
        sa.UniqueConstraint("ticket_hash", name=op.f("desktop_links_ticket_hash_key")),
    )
    op.create_index(op.f("desktop_links_sandbox_id_id_idx"), "desktop_links", ["sandbox_id", "id"])


def downgrade() -> None:
    op.execute("DELETE FROM jobs WHERE kind = 'desktop'")
    op.drop_table("desktop_links")
    op.drop_table("desktops")
    op.execute("DELETE FROM tickets WHERE scope IN ('desktop-view', 'desktop-control')")
    _replace_ticket_scopes(*SCOPES)
    op.drop_column("sandboxes", "desktop")


def _replace_ticket_scopes(*scopes: str) -> None:
    op.drop_constraint(op.f("tickets_scope_check"), "tickets")
    listed = ", ".join(f"'{scope}'" for scope in scopes)
    op.create_check_constraint(op.f("tickets_scope_check"), "tickets", f"scope IN ({listed})")
