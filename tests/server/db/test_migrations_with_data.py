"""A database as it grows up: rows of every revision, on the way from the first to the newest and back."""

from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import text

from sandbox_server.db.schema_migrations import alembic_config, upgrade
from tests.server.support.databases import EVERY_POSTGRES

pytestmark = EVERY_POSTGRES

# What is put in once a revision is there: each table that it makes has a row, and so has what it changes.
ROWS = {
    "0001": r"""
        INSERT INTO backends (name, capacity, state) VALUES ('here', 20, 'up'), ('there', 5, 'down');
        INSERT INTO installation (id, encryption_key_id) VALUES ('inst', 'k1');
        INSERT INTO jobs (kind, subject, run_at, attempts) VALUES ('sandbox', 's-running', '2026-01-02 03:04Z', 2);
        INSERT INTO jobs (kind, subject, attempts, last_error, dead_at)
            VALUES ('sandbox', 's-failed', 10, 'refused', '2026-01-02 03:04Z');
        INSERT INTO tenants (id, name, max_running, max_queued, defaults, rules)
            VALUES ('t', 'default', 10, 100, '{"timeout": 60}', '[{"agent_type": "a", "backend": "here"}]');
        INSERT INTO api_keys (id, tenant_id, hash, prefix, scopes, rate_per_s)
            VALUES ('k', 't', '\x01', 'sk_1', '{admin,read}', 2.5);
        INSERT INTO streams (tenant_id, next_seq) VALUES ('t', 3);
        INSERT INTO templates (id, tenant_id, name) VALUES ('m', 't', 'mine'), ('b', NULL, 'base');
        INSERT INTO template_builds (template_id, backend, backend_template_id, state)
            VALUES ('m', 'here', 'x1', 'ready'), ('m', 'there', NULL, 'failed');
        INSERT INTO sandboxes (id, tenant_id, template, backend, backend_sandbox_id, state, session_id, metadata, envs_sealed,
                timeout, expires_at, started_at)
            VALUES ('s-running', 't', 'base', 'here', 'p1', 'running', 'conversation', '{"team": "a"}', '\x02',
                '1 hour', '2027-01-01Z', '2026-12-31Z');
        INSERT INTO sandboxes (id, tenant_id, template, backend, backend_sandbox_id, state, target, timeout, remaining)
            VALUES ('s-paused', 't', 'mine', 'there', 'p2', 'paused', 'paused', '1 hour', '10 minutes');
        INSERT INTO sandboxes (id, tenant_id, template, timeout, priority) VALUES ('s-queued', 't', 'base', '1 hour', 3);
        INSERT INTO sandboxes (id, tenant_id, template, state, state_reason, timeout, ended_at)
            VALUES ('s-failed', 't', 'base', 'failed', 'refused', '1 hour', '2026-01-01Z');
        INSERT INTO events (tenant_id, seq, sandbox_id, type, data)
            VALUES ('t', 1, 's-running', 'sandbox.running', '{"cause": "api"}'), ('t', 2, NULL, 'key.created', '{}');
        INSERT INTO idempotency (tenant_id, key, digest, sandbox_id) VALUES ('t', 'once', '\x03', 's-running')""",
    "0002": r"""
        UPDATE sandboxes SET candidates = '{here}', volumes = '{"data": "/data"}' WHERE id = 's-queued';
        INSERT INTO snapshots (id, tenant_id, sandbox_id, backend, name, state)
            VALUES ('n', 't', 's-running', 'here', 'before', 'ready');
        INSERT INTO idempotency (tenant_id, key, digest, resource, resource_id)
            VALUES ('t', 'again', '\x04', 'sandbox', 's-running')""",
    "0003": "UPDATE backends SET failing_since = '2026-01-01Z', strangers = 2 WHERE name = 'there'",
    "0007": "UPDATE installation SET engine = 'e1'",
    "0008": r"""
        UPDATE templates SET definition_sealed = '\x05' WHERE id = 'm';
        INSERT INTO templates (id, tenant_id, name, deleted_at) VALUES ('gone', 't', 'mine', '2026-01-01Z');
        UPDATE template_builds SET log_head = 'made', log_size = 4 WHERE backend = 'here';
        UPDATE sandboxes SET template_id = 'm' WHERE id = 's-paused'""",
    "0009": r"""
        INSERT INTO commands (id, tenant_id, sandbox_id, cmd, state, exit_code, ended_at, last_seq, stdout_size)
            VALUES ('c', 't', 's-running', 'echo hello', 'exited', 0, '2026-01-01Z', 2, 6);
        INSERT INTO command_output (sandbox_id, seq, command_id, type, content)
            VALUES ('s-running', 2, 'c', 'stdout', 'hello\012'::bytea);
        INSERT INTO tickets (hash, tenant_id, key_id, scope, sandbox_id, expires_at)
            VALUES ('\x06', 't', 'k', 'read', 's-running', '2027-01-01Z')""",
    "0010": """
        UPDATE sandboxes SET has_services = true, template_note = 'not yet' WHERE id = 's-running';
        INSERT INTO commands (id, tenant_id, sandbox_id, cmd, kind, agent)
            VALUES ('r', 't', 's-running', '', 'agent', '{"agent": "claude"}')""",
    "0011": r"INSERT INTO logins (id, hash, key_id, expires_at) VALUES ('l', '\x07', 'k', '2027-01-01Z')",
    "0012": r"""
        INSERT INTO forges (id, tenant_id, name, kind, git_url, auth) VALUES ('f', 't', 'github', 'git', 'https://forge', 'none');
        INSERT INTO forge_tokens (forge_id, repository, access, token_sealed, expires_at)
            VALUES ('f', '1', 'read', '\x08', '2027-01-01Z');
        INSERT INTO forge_budgets (forge_id, account, resource) VALUES ('f', 'token', 'core');
        INSERT INTO webhook_deliveries (id, forge_id, delivery_id, kind, action, digest) VALUES ('w', 'f', 'd', 'push', '', '\x09');
        INSERT INTO repositories (id, tenant_id, forge_id, external_id, full_name, default_branch, url)
            VALUES ('r', 't', 'f', '1', 'acme/widgets', 'main', 'https://forge/acme/widgets');
        INSERT INTO tasks (id, tenant_id, repository_id, title, instructions, source, base_ref, directory)
            VALUES ('a', 't', 'r', 'Fix it', 'Fix it.', 'text', 'main', '/workspace');
        INSERT INTO task_messages (id, task_id, origin, text) VALUES ('e', 'a', 'api', 'Fix it.');
        INSERT INTO task_runs (task_id, number, kind, cause, cause_ref, sandbox_id) VALUES ('a', 1, 'agent', 'created', '', 's-running');
        INSERT INTO task_saves (task_id, number, kind, cause, sha, head_sha, tree, base_sha, mark, size)
            VALUES ('a', 1, 'wip', 'run', 'c', 'b', 'd', 'a', 'm', 1);
        INSERT INTO task_save_parts (id, task_id, number, part, content_sealed) VALUES ('o', 'a', 1, 1, '\x0a');
        INSERT INTO pull_requests (repository_id, number, task_id, url, lifecycle, head_ref, head_sha, base_ref, provider_updated_at)
            VALUES ('r', 1, 'a', 'https://forge/1', 'open', 'task-a', 'b', 'main', '2026-01-01Z');
        INSERT INTO forge_checks (repository_id, sha, external_id, name, origin) VALUES ('r', 'b', '1', 'test', 'job');
        INSERT INTO forge_writes (id, forge_id, task_id, kind, key) VALUES ('i', 'f', 'a', 'comment', 'k');
        INSERT INTO events (tenant_id, seq, task_id, type, data) VALUES ('t', 3, 'a', 'task.created', '{}')""",
    "0013": r"""
        INSERT INTO git_pushes (id, tenant_id, repository_id, sandbox_id, branch, new_sha, state, size)
            VALUES ('p', 't', 'r', 's-running', 'task-a', 'b', 'kept', 1);
        INSERT INTO git_push_parts (id, push_id, part, content_sealed) VALUES ('q', 'p', 1, '\x0b')""",
    "0017": r"""
        INSERT INTO task_large_file_parts (id, task_id, oid, part, content_sealed) VALUES ('u', 'a', 'o', 1, '\x0c')""",
    "0019": "INSERT INTO task_attempts (task_id, number) VALUES ('a', 1)",
    "0022": """
        INSERT INTO browser_sessions (id, tenant_id, key_id, sandbox_id, timeout) VALUES ('x', 't', 'k', 's-running', '1 hour');
        INSERT INTO browser_drivers (id, session_id, until) VALUES ('y', 'x', '2027-01-01Z')""",
    "0024": r"""
        INSERT INTO browser_contexts (id, tenant_id) VALUES ('bc', 't');
        INSERT INTO browser_extensions (id, tenant_id, file_name) VALUES ('be', 't', 'e.zip');
        INSERT INTO browser_file_parts (id, owner_id, part, content_sealed) VALUES ('bp', 'be', 0, '\x0d')""",
    "0025": r"""
        UPDATE sandboxes SET desktop = '{"width": 800}' WHERE id = 's-running';
        INSERT INTO desktops (sandbox_id, holder, version) VALUES ('s-running', 'person', 2);
        INSERT INTO tickets (hash, tenant_id, key_id, scope, sandbox_id, expires_at)
            VALUES ('\x1d', 't', 'k', 'desktop-view', 's-running', '2027-01-01Z');
        INSERT INTO desktop_links (id, sandbox_id, ticket_hash, mode) VALUES ('v', 's-running', '\x1d', 'view')""",
    "0026": r"""
        INSERT INTO browser_records (id, session_id, kind, size, first_ms, last_ms, content_sealed)
            VALUES ('br', 'x', 'entries', 1, 1, 1, '\x0e')""",
    "0028": r"""
        INSERT INTO desktop_recordings (sandbox_id, id, fps, width, height, started_at)
            VALUES ('s-running', 'rec', 5, 64, 48, '2027-01-01Z');
        INSERT INTO desktop_recording_parts (id, sandbox_id, recording_id, part, begins, lasts, size, content_sealed)
            VALUES ('rp', 's-running', 'rec', 0, 0, 0, 1, '\x0f')""",
}

# What a later revision has no place for, so that the way back cannot bring it.
GIVEN_UP = {
    "idempotency": None,  # all of it: what was asked for twice is asked for again
    "template_builds": {"spec", "log"},  # of builds that no version of the server made then
}


def revisions():
    """List all revisions, the first one first."""
    walked = ScriptDirectory.from_config(alembic_config()).walk_revisions()
    return [one.revision for one in walked][::-1]


async def move(database, act, revision):
    def run(connection):
        config = alembic_config()
        config.attributes["connection"] = connection
        act(config, revision)

    async with database.connect() as connection:
        await connection.run_sync(run)


async def grow_up(database):
    """Go through all revisions, as an installation does that was there from the beginning; tells what was in each."""
    found = {}
    await move(database, command.downgrade, "base")
    for revision in revisions():
        await upgrade(database, revision)
        async with database.begin() as connection:
            for statement in filter(str.strip, ROWS.get(revision, "").split(";")):
                await connection.exec_driver_sql(statement)
        found[revision] = await contents(database)
    return found


async def contents(database):
    """Read every row of every table."""
    names = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
    async with database.connect() as connection:
        return {
            name: list(await connection.scalars(text(f"SELECT to_jsonb(one) FROM {name} one")))
            for name in await connection.scalars(text(names))
        }


def changes(before, after):
    """Name what was there before and is not as it was."""
    for table, rows in before.items():
        lost = GIVEN_UP.get(table, set())
        if lost is None:
            continue
        there = [without(row, lost) for row in after[table]]
        yield from ((table, row) for row in rows if without(row, lost) not in there)


def without(row, columns):
    return {name: value for name, value in row.items() if name not in columns}


async def test_migrations__the_old_database_has_rows_in_every_table(database):
    grown = (await grow_up(database))[revisions()[-1]]
    assert [name for name, rows in grown.items() if not rows] == []
    await move(database, lambda config, _: command.check(config), None)


async def test_migrations__rows_of_the_first_revision_survive_to_the_newest(database):
    found = await grow_up(database)
    first, *_, last = found.values()
    for table, rows in first.items():
        if GIVEN_UP.get(table, set()) is not None:
            columns = rows[0].keys() & last[table][0].keys()
            there = [{name: row[name] for name in columns} for row in last[table]]
            assert [row for row in rows if {n: row[n] for n in columns} not in there] == []


async def test_migrations__each_downgrade_keeps_the_rows_of_its_revision(database):
    found = await grow_up(database)
    for revision in reversed(revisions()):
        await move(database, command.downgrade, revision)
        assert list(changes(found[revision], await contents(database))) == [], revision


async def test_migrations__an_upgrade_after_a_downgrade_matches_the_models(database):
    await grow_up(database)
    for revision in reversed(revisions()[:-1]):
        await move(database, command.downgrade, revision)
        before = await contents(database)
        await upgrade(database)
        await move(database, lambda config, _: command.check(config), None)
        await move(database, command.downgrade, revision)
        assert list(changes(before, await contents(database))) == [], revision
