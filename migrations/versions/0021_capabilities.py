"""Capabilities of templates, and of the sandboxes and snapshots made from them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0021"
down_revision = "0020"

_TABLES = ("templates", "sandboxes", "snapshots")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(
            table,
            sa.Column(
                "capabilities", ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False
            ),
        )
        # All templates with services have had the tool server so far.
        rows = sa.table(
            table, sa.column("capabilities", ARRAY(sa.Text())), sa.column("has_services")
        )
        op.execute(sa.update(rows).where(rows.c.has_services).values(capabilities=["mcp"]))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "capabilities")
