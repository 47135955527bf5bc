"""The server's tables."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)


def created_at() -> sa.Column[datetime]:
    now = sa.text("clock_timestamp()")
    return sa.Column("created_at", INSTANT, server_default=now, nullable=False)


def document(name: str) -> sa.Column[Any]:
    return sa.Column(name, JSONB(), server_default=sa.text("'{}'"), nullable=False)


def upgrade() -> None:
    op.create_table(
        "backends",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("drained", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("state", sa.Text(), server_default="unknown", nullable=False),
        sa.Column("seen_at", INSTANT),
        created_at(),
        sa.CheckConstraint("state IN ('unknown', 'up', 'down')", name=op.f("backends_state_check")),
        sa.CheckConstraint("capacity >= 0", name=op.f("backends_capacity_check")),
        sa.PrimaryKeyConstraint("name", name="backends_pkey"),
    )
    op.create_table(
        "installation",
        sa.Column("id", ID, nullable=False),
        sa.Column("encryption_key_id", sa.Text()),
        sa.Column("singleton", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        created_at(),
        sa.CheckConstraint("singleton", name=op.f("installation_singleton_check")),
        sa.PrimaryKeyConstraint("id", name="installation_pkey"),
        sa.UniqueConstraint("singleton", name="installation_singleton_key"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("run_at", INSTANT),
        sa.Column("woken_at", INSTANT),
        sa.Column("leased_by", sa.Text()),
        sa.Column("leased_until", INSTANT),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error", sa.Text()),
        sa.Column("dead_at", INSTANT),
        created_at(),
        sa.PrimaryKeyConstraint("id", name="jobs_pkey"),
        sa.UniqueConstraint("kind", "subject", name="jobs_kind_subject_key"),
        postgresql_with={"fillfactor": 70},
    )
    op.create_index(
        "jobs_dead_at_idx", "jobs", ["dead_at"], postgresql_where=sa.text("dead_at IS NOT NULL")
    )
    op.create_index(
        "jobs_run_at_id_idx", "jobs", ["run_at", "id"], postgresql_where=sa.text("dead_at IS NULL")
    )
    op.create_table(
        "tenants",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=False),
        sa.Column("max_queued", sa.Integer(), nullable=False),
        document("defaults"),
        sa.Column("rules", JSONB(), server_default=sa.text("'[]'"), nullable=False),
        created_at(),
        sa.CheckConstraint("max_queued >= 0", name=op.f("tenants_max_queued_check")),
        sa.CheckConstraint("max_running >= 0", name=op.f("tenants_max_running_check")),
        sa.PrimaryKeyConstraint("id", name="tenants_pkey"),
        sa.UniqueConstraint("name", name="tenants_name_key"),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("max_priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("rate_per_s", sa.Double()),
        sa.Column("last_used_at", INSTANT),
        sa.Column("revoked_at", INSTANT),
        created_at(),
        sa.CheckConstraint(
            "scopes <@ ARRAY['read', 'sandboxes', 'admin']", name=op.f("api_keys_scopes_check")
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="api_keys_tenant_id_fkey"),
        sa.PrimaryKeyConstraint("id", name="api_keys_pkey"),
        sa.UniqueConstraint("hash", name="api_keys_hash_key"),
    )
    op.create_index("api_keys_tenant_id_idx", "api_keys", ["tenant_id"])
    op.create_table(
        "events",
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("sandbox_id", ID),
        sa.Column("type", sa.Text(), nullable=False),
        document("data"),
        created_at(),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="events_tenant_id_fkey"),
        sa.PrimaryKeyConstraint("tenant_id", "seq", name="events_pkey"),
    )
    op.create_index("events_created_at_idx", "events", ["created_at"])
    op.create_index(
        "events_tenant_id_sandbox_id_seq_idx",
        "events",
        ["tenant_id", "sandbox_id", "seq"],
        postgresql_where=sa.text("sandbox_id IS NOT NULL"),
    )
    op.create_table(
        "sandboxes",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("template", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text()),
        sa.Column("backend_sandbox_id", sa.Text()),
        sa.Column("agent_type", sa.Text()),
        sa.Column("user_id", sa.Text()),
        sa.Column("session_id", sa.Text()),
        document("metadata"),
        sa.Column("envs_sealed", sa.LargeBinary()),
        sa.Column("access_sealed", sa.LargeBinary()),
        document("resources"),
        document("network"),
        sa.Column("state", sa.Text(), server_default="queued", nullable=False),
        sa.Column("state_reason", sa.Text()),
        sa.Column("target", sa.Text(), server_default="running", nullable=False),
        sa.Column("wanted", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "queued_at", INSTANT, server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("queue_expires_at", INSTANT),
        sa.Column("started_at", INSTANT),
        sa.Column("last_activity_at", INSTANT),
        sa.Column("awake_until", INSTANT),
        sa.Column("idle_timeout", sa.Interval()),
        sa.Column("timeout", sa.Interval(), nullable=False),
        sa.Column("expires_at", INSTANT),
        sa.Column("remaining", sa.Interval()),
        sa.Column("retain_until", INSTANT),
        sa.Column("provider_until", INSTANT),
        sa.Column("on_timeout", sa.Text(), server_default="pause", nullable=False),
        sa.Column("auto_resume", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("ended_at", INSTANT),
        created_at(),
        sa.CheckConstraint(
            "(ended_at IS NOT NULL) = (state IN ('stopped', 'failed'))",
            name=op.f("sandboxes_ended_at_check"),
        ),
        sa.CheckConstraint(
            "on_timeout IN ('pause', 'delete')", name=op.f("sandboxes_on_timeout_check")
        ),
        sa.CheckConstraint(
            "state <> 'paused' OR expires_at IS NULL", name=op.f("sandboxes_expires_at_check")
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'starting', 'running', 'pausing', 'paused', 'resuming', 'stopping', 'stopped', 'failed')",
            name=op.f("sandboxes_state_check"),
        ),
        sa.CheckConstraint(
            "target IN ('running', 'paused', 'gone')", name=op.f("sandboxes_target_check")
        ),
        sa.ForeignKeyConstraint(["backend"], ["backends.name"], name="sandboxes_backend_fkey"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="sandboxes_tenant_id_fkey"),
        sa.PrimaryKeyConstraint("id", name="sandboxes_pkey"),
    )
    op.create_index(
        "sandboxes_backend_backend_sandbox_id_idx",
        "sandboxes",
        ["backend", "backend_sandbox_id"],
        unique=True,
        postgresql_where=sa.text("backend_sandbox_id IS NOT NULL"),
    )
    op.create_index(
        "sandboxes_backend_state_idx",
        "sandboxes",
        ["backend", "state"],
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "sandboxes_ended_at_idx",
        "sandboxes",
        ["ended_at"],
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        "sandboxes_metadata_idx",
        "sandboxes",
        ["metadata"],
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
    )
    op.create_index(
        "sandboxes_queue_idx",
        "sandboxes",
        ["tenant_id", sa.literal_column("priority DESC"), "queued_at", "id"],
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index("sandboxes_tenant_id_id_idx", "sandboxes", ["tenant_id", "id"])
    op.create_index(
        "sandboxes_tenant_id_session_id_id_idx",
        "sandboxes",
        ["tenant_id", "session_id", "id"],
        postgresql_where=sa.text("session_id IS NOT NULL"),
    )
    op.create_index(
        "sandboxes_tenant_id_state_idx",
        "sandboxes",
        ["tenant_id", "state"],
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "sandboxes_tenant_id_user_id_id_idx",
        "sandboxes",
        ["tenant_id", "user_id", "id"],
        postgresql_where=sa.text("user_id IS NOT NULL"),
    )
    op.create_table(
        "streams",
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("next_seq", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        created_at(),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="streams_tenant_id_fkey"),
        sa.PrimaryKeyConstraint("tenant_id", name="streams_pkey"),
    )
    op.create_table(
        "templates",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID),
        sa.Column("name", sa.Text(), nullable=False),
        created_at(),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="templates_tenant_id_fkey"),
        sa.PrimaryKeyConstraint("id", name="templates_pkey"),
        sa.UniqueConstraint(
            "tenant_id",
            "name",
            name="templates_tenant_id_name_key",
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_table(
        "idempotency",
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("sandbox_id", ID, nullable=False),
        created_at(),
        sa.ForeignKeyConstraint(
            ["sandbox_id"], ["sandboxes.id"], name="idempotency_sandbox_id_fkey", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="idempotency_tenant_id_fkey"),
        sa.PrimaryKeyConstraint("tenant_id", "key", name="idempotency_pkey"),
    )
    op.create_index("idempotency_created_at_idx", "idempotency", ["created_at"])
    op.create_index("idempotency_sandbox_id_idx", "idempotency", ["sandbox_id"])
    op.create_table(
        "template_builds",
        sa.Column("template_id", ID, nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("backend_template_id", sa.Text()),
        sa.Column("state", sa.Text(), server_default="building", nullable=False),
        created_at(),
        sa.CheckConstraint(
            "state IN ('building', 'ready', 'failed')", name=op.f("template_builds_state_check")
        ),
        sa.ForeignKeyConstraint(
            ["backend"], ["backends.name"], name="template_builds_backend_fkey"
        ),
        sa.ForeignKeyConstraint(
            ["template_id"],
            ["templates.id"],
            name="template_builds_template_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("template_id", "backend", name="template_builds_pkey"),
    )
    op.create_index("template_builds_backend_idx", "template_builds", ["backend"])


def downgrade() -> None:
    op.drop_table("template_builds")
    op.drop_table("idempotency")
    op.drop_table("templates")
    op.drop_table("streams")
    op.drop_table("sandboxes")
    op.drop_table("events")
    op.drop_table("api_keys")
    op.drop_table("tenants")
    op.drop_table("jobs")
    op.drop_table("installation")
    op.drop_table("backends")
