"""Tenants' defaults of desktops, browsers and MCP servers."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("tenants", sa.Column("computers_sealed", sa.LargeBinary()))


def downgrade() -> None:
    op.drop_column("tenants", "computers_sealed")
