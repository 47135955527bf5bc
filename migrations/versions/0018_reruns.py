"""Reruns of jobs at the forge that an agent reports as flaky."""

from alembic import op

revision = "0018"
down_revision = "0017"

_NAME = "forge_writes_kind_check"
_KINDS = "'push', 'pull', 'comment', 'reply', 'label', 'reviewers', 'delete-branch'"


def upgrade() -> None:
    op.drop_constraint(op.f(_NAME), "forge_writes")
    op.create_check_constraint(op.f(_NAME), "forge_writes", f"kind IN ({_KINDS}, 'rerun')")


def downgrade() -> None:
    op.execute("DELETE FROM forge_writes WHERE kind = 'rerun'")
    op.drop_constraint(op.f(_NAME), "forge_writes")
    op.create_check_constraint(op.f(_NAME), "forge_writes", f"kind IN ({_KINDS})")
