"""Prometheus scrapes every few seconds, so totals must stay cheap with many sandboxes."""

from sqlalchemy import text

from sandbox_server.admin.stats_repository import StatsRepository
from tests.server.support.databases import EVERY_POSTGRES
from tests.server.support.query_plans import explain, nodes, rows_read, vacuum

pytestmark = EVERY_POSTGRES

# 200 wait, 800 run, 4,000 are paused, all others have ended.
_MANY = """
INSERT INTO tenants (id, name, max_running, max_queued) VALUES ('t', 'T', 100, 100);
INSERT INTO backends (name, capacity) VALUES ('local', 1000);
INSERT INTO sandboxes (id, tenant_id, template, backend, candidates, state, target, timeout, ended_at)
SELECT lpad(n::text, 20, '0'), 't', 'base', CASE WHEN n > 200 THEN 'local' END, '{local}', state,
    CASE WHEN n <= 1000 THEN 'running' ELSE 'paused' END, '1 hour',
    CASE WHEN state = 'stopped' THEN now() END
FROM generate_series(1, 100000) AS n, LATERAL (SELECT CASE WHEN n <= 200 THEN 'queued'
    WHEN n <= 1000 THEN 'running' WHEN n <= 5000 THEN 'paused' ELSE 'stopped' END AS state) AS life;
INSERT INTO jobs (kind, subject, run_at, dead_at, attempts)
SELECT 'sandbox', n::text, CASE WHEN n <= 4000 THEN now() + interval '1 hour' * (n - 10) END,
    CASE WHEN n > 99990 THEN now() END, 0 FROM generate_series(1, 100000) AS n
"""


async def test_query_plans__totals_use_indexes_and_skip_ended_sandboxes(database):
    async with database.begin() as connection:
        for statement in _MANY.split(";"):
            await connection.execute(text(statement))
    await vacuum(database, "tenants", "backends", "sandboxes", "jobs")

    async def count(session):
        stats = StatsRepository(session)
        counted = await stats.count_states()
        assert {(one.backend, one.state, one.count) for one in counted} == {
            ("local", "queued", 200),
            ("local", "running", 800),
            ("local", "paused", 4000),
        }
        [line] = await stats.list_queues()
        assert (line.backend, line.depth) == ("local", 200)
        [due] = await stats.list_due_jobs()
        assert (due.kind, due.count) == ("sandbox", 10)
        assert await stats.count_dead_jobs() == 10

    placed, placeless, waiting, due, dead = await explain(database, count)

    assert {"Index Only Scan"} >= {
        node["Node Type"] for node in nodes(placed) if "Relation Name" in node
    }
    assert rows_read(placed, "sandboxes") == 4800
    assert rows_read(placeless, "sandboxes") == rows_read(waiting, "sandboxes") == 200
    assert rows_read(due, "jobs") == rows_read(dead, "jobs") == 10
