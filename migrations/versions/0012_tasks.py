"""Forges, repositories and tasks: from an issue to a pull request."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
NOW = sa.text("clock_timestamp()")
DOCUMENT = postgresql.JSONB(astext_type=sa.Text())
_TABLES = (
    "task_save_parts",
    "task_saves",
    "task_runs",
    "task_messages",
    "pull_requests",
    "forge_writes",
    "tasks",
    "forge_checks",
    "webhook_deliveries",
    "repositories",
    "forge_tokens",
    "forge_budgets",
    "forges",
)


def upgrade() -> None:
    op.create_table(
        "forges",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("api_url", sa.Text()),
        sa.Column("git_url", sa.Text(), nullable=False),
        sa.Column("auth", sa.Text(), nullable=False),
        sa.Column("app_id", sa.Text()),
        sa.Column("secret_sealed", sa.LargeBinary()),
        sa.Column("webhook_secret_sealed", sa.LargeBinary()),
        sa.Column("bot_login", sa.Text()),
        sa.Column("bot_id", sa.Text()),
        sa.Column("git_username", sa.Text()),
        sa.Column("removed_at", INSTANT),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "(auth = 'app') = (app_id IS NOT NULL)", name=op.f("forges_app_id_check")
        ),
        sa.CheckConstraint(
            "(auth = 'none') = (secret_sealed IS NULL)", name=op.f("forges_secret_check")
        ),
        sa.CheckConstraint("auth IN ('app', 'token', 'none')", name=op.f("forges_auth_check")),
        sa.CheckConstraint(
            "kind IN ('github', 'gitlab', 'forgejo', 'git')", name=op.f("forges_kind_check")
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("forges_tenant_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("forges_pkey")),
    )
    op.create_index(
        "forges_name_idx",
        "forges",
        ["tenant_id", "name"],
        unique=True,
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "forge_budgets",
        sa.Column("forge_id", ID, nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("quota", sa.Integer()),
        sa.Column("remaining", sa.Integer()),
        sa.Column("reset_at", INSTANT),
        sa.Column("paused_until", INSTANT),
        sa.Column("paused_reason", sa.Text()),
        sa.Column("strikes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("writes_minute", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("minute_began_at", INSTANT),
        sa.Column("writes_hour", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("hour_began_at", INSTANT),
        sa.Column("last_write_at", INSTANT),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["forge_id"],
            ["forges.id"],
            name=op.f("forge_budgets_forge_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("forge_id", "account", "resource", name=op.f("forge_budgets_pkey")),
    )
    op.create_table(
        "forge_tokens",
        sa.Column("forge_id", ID, nullable=False),
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("access", sa.Text(), nullable=False),
        sa.Column("token_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "access IN ('read', 'write', 'workflows', 'api')",
            name=op.f("forge_tokens_access_check"),
        ),
        sa.ForeignKeyConstraint(
            ["forge_id"], ["forges.id"], name=op.f("forge_tokens_forge_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("forge_id", "repository", "access", name=op.f("forge_tokens_pkey")),
    )
    op.create_index(op.f("forge_tokens_expires_at_idx"), "forge_tokens", ["expires_at"])
    op.create_table(
        "repositories",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("forge_id", ID, nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("full_name", sa.Text(), nullable=False),
        sa.Column("default_branch", sa.Text(), nullable=False),
        sa.Column("private", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("may_push", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("installation_id", sa.Text()),
        sa.Column("settings", DOCUMENT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("envs_sealed", sa.LargeBinary()),
        sa.Column("size_bytes", sa.BigInteger()),
        sa.Column("prepared_snapshot", ID),
        sa.Column("prepared_sha", sa.Text()),
        sa.Column("prepared_at", INSTANT),
        sa.Column("prepared_from", postgresql.JSONB(none_as_null=True, astext_type=sa.Text())),
        sa.Column("preparation", postgresql.JSONB(none_as_null=True, astext_type=sa.Text())),
        sa.Column("prepare_error", sa.Text()),
        sa.Column("triggers_paused_reason", sa.Text()),
        sa.Column("removed_at", INSTANT),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["forge_id"], ["forges.id"], name=op.f("repositories_forge_id_fkey")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("repositories_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("repositories_pkey")),
        sa.UniqueConstraint(
            "tenant_id",
            "forge_id",
            "external_id",
            name=op.f("repositories_tenant_id_forge_id_external_id_key"),
        ),
    )
    op.create_index(
        op.f("repositories_forge_id_external_id_idx"), "repositories", ["forge_id", "external_id"]
    )
    op.create_index(
        op.f("repositories_tenant_id_full_name_idx"),
        "repositories",
        ["tenant_id", "full_name"],
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_index(op.f("repositories_tenant_id_id_idx"), "repositories", ["tenant_id", "id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", ID, nullable=False),
        sa.Column("forge_id", ID, nullable=False),
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("repository", sa.Text()),
        sa.Column("repository_name", sa.Text()),
        sa.Column("subject", sa.Text()),
        sa.Column("actor", sa.Text()),
        sa.Column("actor_is_bot", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("body", sa.LargeBinary()),
        sa.Column("received_at", INSTANT, server_default=NOW, nullable=False),
        sa.Column("done_at", INSTANT),
        sa.Column("outcome", sa.Text()),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "kind IN ('issue', 'comment', 'pull', 'review', 'review-comment', 'check', 'push', 'installation', 'ping', 'other')",
            name=op.f("webhook_deliveries_kind_check"),
        ),
        sa.ForeignKeyConstraint(
            ["forge_id"],
            ["forges.id"],
            name=op.f("webhook_deliveries_forge_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("webhook_deliveries_pkey")),
        sa.UniqueConstraint(
            "forge_id", "delivery_id", name=op.f("webhook_deliveries_forge_id_delivery_id_key")
        ),
        sa.UniqueConstraint(
            "forge_id", "digest", name=op.f("webhook_deliveries_forge_id_digest_key")
        ),
    )
    op.create_index(
        "webhook_deliveries_open_idx",
        "webhook_deliveries",
        ["forge_id", "received_at"],
        postgresql_where=sa.text("done_at IS NULL"),
    )
    op.create_index(
        op.f("webhook_deliveries_received_at_idx"), "webhook_deliveries", ["received_at"]
    )
    op.create_table(
        "forge_checks",
        sa.Column("repository_id", ID, nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("is_done", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("conclusion", sa.Text()),
        sa.Column("url", sa.Text()),
        sa.Column("seen_at", INSTANT, server_default=NOW, nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("forge_checks_repository_id_fkey")
        ),
        sa.PrimaryKeyConstraint(
            "repository_id", "sha", "external_id", name=op.f("forge_checks_pkey")
        ),
    )
    op.create_table(
        "tasks",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("repository_id", ID, nullable=False),
        sa.Column("key_id", ID),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("instructions", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("source_ref", sa.Text()),
        sa.Column("source_url", sa.Text()),
        sa.Column("requester", sa.Text()),
        sa.Column("base_ref", sa.Text(), nullable=False),
        sa.Column("base_sha", sa.Text()),
        sa.Column("branch", sa.Text()),
        sa.Column("directory", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text()),
        sa.Column("agent_command", sa.Text()),
        sa.Column("model", sa.Text()),
        sa.Column("pull_request", sa.Text(), server_default="draft", nullable=False),
        sa.Column("settings", DOCUMENT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("metadata", DOCUMENT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("stage", sa.Text(), server_default="queued", nullable=False),
        sa.Column("stage_reason", sa.Text()),
        sa.Column("stage_at", INSTANT, server_default=NOW, nullable=False),
        sa.Column("stage_before", sa.Text()),
        sa.Column("awaits", postgresql.JSONB(none_as_null=True, astext_type=sa.Text())),
        sa.Column("target", sa.Text(), server_default="finished", nullable=False),
        sa.Column("outcome", sa.Text()),
        sa.Column("outcome_at", INSTANT),
        sa.Column("generation", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("sandboxes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("sandbox_id", ID),
        sa.Column("sandbox_ready", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("approved", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("head_sha", sa.Text()),
        sa.Column("published_sha", sa.Text()),
        sa.Column(
            "pushed_shas", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column("report", DOCUMENT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("session_id", sa.Text()),
        sa.Column("spent_usd", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("budget_usd", sa.Double()),
        sa.Column("runs", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("fixes_since_green", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_runs", sa.Integer(), server_default=sa.text("10"), nullable=False),
        sa.Column("deadline_at", INSTANT),
        sa.Column("ended_at", INSTANT),
        sa.Column("archived_at", INSTANT),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "(ended_at IS NOT NULL) = (stage IN ('cancelled', 'closed', 'done', 'failed', 'merged', 'timed-out'))",
            name=op.f("tasks_ended_at_check"),
        ),
        sa.CheckConstraint(
            "pull_request IN ('draft', 'ready', 'none')", name=op.f("tasks_pull_request_check")
        ),
        sa.CheckConstraint(
            "source IN ('text', 'issue', 'mention', 'ci-fix')",
            name=op.f("tasks_source_check"),
        ),
        sa.CheckConstraint(
            "stage IN ('queued', 'preparing', 'working', 'checking', 'fixing', 'publishing', 'in-review', 'waiting-for-user', 'merged', 'closed', 'done', 'failed', 'cancelled', 'timed-out')",
            name=op.f("tasks_stage_check"),
        ),
        sa.CheckConstraint("target IN ('finished', 'cancelled')", name=op.f("tasks_target_check")),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("tasks_repository_id_fkey")
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("tasks_tenant_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("tasks_pkey")),
        sa.UniqueConstraint("repository_id", "branch", name=op.f("tasks_repository_id_branch_key")),
    )
    op.create_index(
        "tasks_open_idx",
        "tasks",
        ["repository_id", sa.literal_column("priority DESC"), "id"],
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(op.f("tasks_repository_id_id_idx"), "tasks", ["repository_id", "id"])
    op.create_index(
        op.f("tasks_sandbox_id_idx"),
        "tasks",
        ["sandbox_id"],
        postgresql_where=sa.text("sandbox_id IS NOT NULL"),
    )
    op.create_index(
        "tasks_source_idx",
        "tasks",
        ["repository_id", "source", "source_ref"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL AND source_ref IS NOT NULL"),
    )
    op.create_index(op.f("tasks_tenant_id_id_idx"), "tasks", ["tenant_id", "id"])
    op.create_index(op.f("tasks_tenant_id_stage_id_idx"), "tasks", ["tenant_id", "stage", "id"])
    op.create_table(
        "forge_writes",
        sa.Column("id", ID, nullable=False),
        sa.Column("forge_id", ID, nullable=False),
        sa.Column("task_id", ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("payload", DOCUMENT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("result", DOCUMENT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("attempted_at", INSTANT),
        sa.Column("done_at", INSTANT),
        sa.Column("error", sa.Text()),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "kind IN ('push', 'pull', 'comment', 'reply', 'label', 'reviewers', 'delete-branch')",
            name=op.f("forge_writes_kind_check"),
        ),
        sa.ForeignKeyConstraint(
            ["forge_id"], ["forges.id"], name=op.f("forge_writes_forge_id_fkey")
        ),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name=op.f("forge_writes_task_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("forge_writes_pkey")),
        sa.UniqueConstraint(
            "task_id", "kind", "key", name=op.f("forge_writes_task_id_kind_key_key")
        ),
    )
    op.create_index(
        op.f("forge_writes_forge_id_id_idx"),
        "forge_writes",
        ["forge_id", "id"],
        postgresql_where=sa.text("done_at IS NULL"),
    )
    op.create_table(
        "pull_requests",
        sa.Column("repository_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("task_id", ID),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("lifecycle", sa.Text(), nullable=False),
        sa.Column("draft", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("head_ref", sa.Text(), nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("base_ref", sa.Text(), nullable=False),
        sa.Column("mergeable", sa.Boolean()),
        sa.Column("review", sa.Text()),
        sa.Column("checks", sa.Text()),
        sa.Column("provider_updated_at", INSTANT, nullable=False),
        sa.Column("validator", sa.Text()),
        sa.Column("checks_validator", sa.Text()),
        sa.Column("green_at", INSTANT),
        sa.Column("remarks_at", INSTANT),
        sa.Column("looked_at", INSTANT, server_default=NOW, nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "lifecycle IN ('open', 'closed', 'merged')", name=op.f("pull_requests_lifecycle_check")
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("pull_requests_repository_id_fkey")
        ),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name=op.f("pull_requests_task_id_fkey"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("repository_id", "number", name=op.f("pull_requests_pkey")),
    )
    op.create_index(
        op.f("pull_requests_looked_at_idx"),
        "pull_requests",
        ["looked_at"],
        postgresql_where=sa.text("lifecycle = 'open'"),
    )
    op.create_index(
        op.f("pull_requests_task_id_idx"),
        "pull_requests",
        ["task_id"],
        postgresql_where=sa.text("task_id IS NOT NULL"),
    )
    op.create_table(
        "task_messages",
        sa.Column("id", ID, nullable=False),
        sa.Column("task_id", ID, nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("origin_ref", sa.Text()),
        sa.Column("author", sa.Text()),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("data", DOCUMENT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("run_number", sa.Integer()),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "origin IN ('api', 'comment', 'review', 'ci', 'conflict', 'server')",
            name=op.f("task_messages_origin_check"),
        ),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name=op.f("task_messages_task_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("task_messages_pkey")),
        sa.UniqueConstraint(
            "task_id",
            "origin",
            "origin_ref",
            name=op.f("task_messages_task_id_origin_origin_ref_key"),
        ),
    )
    op.create_index(op.f("task_messages_task_id_id_idx"), "task_messages", ["task_id", "id"])
    op.create_table(
        "task_runs",
        sa.Column("task_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("cause_ref", sa.Text(), nullable=False),
        sa.Column("sandbox_id", ID, nullable=False),
        sa.Column("command_id", ID),
        sa.Column("head_before", sa.Text()),
        sa.Column("head_after", sa.Text()),
        sa.Column("outcome", sa.Text()),
        sa.Column("summary", sa.Text()),
        sa.Column("cost_usd", sa.Double()),
        sa.Column("started_at", INSTANT),
        sa.Column("ended_at", INSTANT),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "kind IN ('agent', 'setup', 'checks')", name=op.f("task_runs_kind_check")
        ),
        sa.CheckConstraint(
            "outcome IN ('succeeded', 'failed', 'inert', 'infrastructure', 'timed-out', 'interrupted', 'lost')",
            name=op.f("task_runs_outcome_check"),
        ),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name=op.f("task_runs_task_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("task_id", "number", name=op.f("task_runs_pkey")),
        sa.UniqueConstraint(
            "task_id",
            "kind",
            "cause",
            "cause_ref",
            name=op.f("task_runs_task_id_kind_cause_cause_ref_key"),
        ),
    )
    op.create_index(op.f("task_runs_command_id_idx"), "task_runs", ["command_id"])
    op.create_index(
        "task_runs_open_idx",
        "task_runs",
        ["task_id"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "task_saves",
        sa.Column("task_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run_number", sa.Integer()),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("head_sha", sa.Text()),
        sa.Column("branch", sa.Text()),
        sa.Column("tree", sa.Text(), nullable=False),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.Column("base_sha", sa.Text()),
        sa.Column("files", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("left_out", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint("kind IN ('wip', 'head')", name=op.f("task_saves_kind_check")),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name=op.f("task_saves_task_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("task_id", "number", name=op.f("task_saves_pkey")),
    )
    op.create_table(
        "task_save_parts",
        sa.Column("id", ID, nullable=False),
        sa.Column("task_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("content_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id", "number"],
            ["task_saves.task_id", "task_saves.number"],
            name="task_save_parts_save_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("task_save_parts_pkey")),
        sa.UniqueConstraint(
            "task_id", "number", "part", name=op.f("task_save_parts_task_id_number_part_key")
        ),
    )
    op.add_column("sandboxes", sa.Column("checkout", DOCUMENT))
    op.add_column("events", sa.Column("task_id", ID))
    op.create_index(
        op.f("events_tenant_id_task_id_seq_idx"),
        "events",
        ["tenant_id", "task_id", "seq"],
        postgresql_where=sa.text("task_id IS NOT NULL"),
    )


def downgrade() -> None:
    op.execute(
        "DELETE FROM jobs WHERE kind IN ('task', 'task-save', 'repository', 'forge-writes', "
        "'webhook-delivery', 'webhook-redelivery', 'pull-request', 'checkout', 'preparation')"
    )
    op.execute("DELETE FROM events WHERE type LIKE 'task.%'")
    op.drop_column("events", "task_id")
    op.drop_column("sandboxes", "checkout")
    for table in _TABLES:
        op.drop_table(table)
