"""What callers ask all the time costs the same among a thousand sandboxes and a hundred thousand."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from sqlalchemy import text

from sandbox_server.access.key_repository import KeyRepository
from sandbox_server.access.ticket_repository import TicketRepository
from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.session import create_engine
from sandbox_server.domain.errors import IdempotencyMismatch
from sandbox_server.domain.requests import Idempotency
from sandbox_server.domain.state import State
from sandbox_server.log.events import EventRepository
from sandbox_server.sandboxes.drift.repository import DriftRepository
from sandbox_server.sandboxes.repositories.activity import ActivityRepository
from sandbox_server.sandboxes.repositories.sandboxes import SandboxFilter, SandboxRepository
from tests.server.support.databases import EVERY_POSTGRES, new_database
from tests.server.support.query_plans import explain, reads_by_index, rows_read, vacuum

pytestmark = EVERY_POSTGRES

_PAGE = 50
_TABLES = ("tenants", "backends", "sandboxes", "events", "idempotency", "api_keys", "tickets")
# Of every thousand sandboxes ten run, fifty are paused and one failed; the last five hundred have all ended.
_MANY = """
INSERT INTO tenants (id, name, max_running, max_queued) VALUES ('t', 'T', 100, 100);
INSERT INTO backends (name, capacity) SELECT name, 1000 FROM unnest(ARRAY['local', 'other']) AS name;
INSERT INTO sandboxes (id, tenant_id, template, backend, backend_sandbox_id, user_id, session_id,
    metadata, state, target, timeout, expires_at, access_sealed, ended_at)
SELECT to_char(n, 'FM00000000000000000000'), 't', 'base', backend, 'p' || n, 'u' || n % 1000,
    's' || n % 50000, jsonb_build_object('run', (n % 20000)::text, 'team', 'all'), state,
    CASE WHEN state = 'running' THEN 'running' ELSE 'paused' END, interval '1 hour',
    CASE WHEN state = 'running' THEN now() + interval '1 hour' END, 'sealed',
    CASE WHEN state IN ('stopped', 'failed') THEN now() END
FROM generate_series(1, 100000) AS n,
LATERAL (SELECT
    CASE WHEN n % 10 = 0 THEN 'other' ELSE 'local' END AS backend,
    CASE WHEN n > 99500 THEN 'stopped' WHEN n % 1000 < 10 THEN 'running'
        WHEN n % 1000 < 60 THEN 'paused' WHEN n % 1000 = 60 THEN 'failed' ELSE 'stopped' END AS state) AS fate;
INSERT INTO events (tenant_id, seq, sandbox_id, type)
SELECT 't', n, to_char(n % 10000, 'FM00000000000000000000'), 'sandbox.paused' FROM generate_series(1, 100000) AS n;
INSERT INTO idempotency (tenant_id, key, digest, resource, resource_id)
SELECT 't', 'k' || n, 'd', 'sandbox', 'r' FROM generate_series(1, 100000) AS n;
INSERT INTO api_keys (id, tenant_id, hash, prefix, scopes)
SELECT 'k' || n, 't', sha256(n::text::bytea), 'p', '{read}' FROM generate_series(1, 10000) AS n;
INSERT INTO tickets (hash, tenant_id, key_id, scope, expires_at)
SELECT sha256(n::text::bytea), 't', 'k1', 'read', now() + (n - 9900) * interval '1 h' FROM generate_series(1, 10000) AS n
"""
_FILTERS = (
    SandboxFilter(),
    SandboxFilter(states=frozenset({State.RUNNING})),
    SandboxFilter(states=frozenset({State.FAILED})),
    SandboxFilter(states=frozenset(State)),
    SandboxFilter(user_id="u3"),
    SandboxFilter(session_id="s3"),
    SandboxFilter(labels={"run": "3"}),
    SandboxFilter(labels={"team": "all"}),
)


def _id(number: int) -> str:
    return f"{number:020}"


@pytest.fixture(scope="module")
def filled():
    """Fill one database on each server as it is after months: the tests change nothing in it."""
    urls = {}
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:

        def fill(server_url):
            if server_url not in urls:
                urls[server_url] = runner.run(_fill(stack, server_url))
            return urls[server_url]

        yield fill
        runner.run(stack.aclose())


async def _fill(stack, server_url):
    url = await stack.enter_async_context(new_database(server_url))
    database = create_engine(url)
    async with database.begin() as connection:
        for statement in _MANY.split(";"):
            await connection.execute(text(statement))
    await vacuum(database, *_TABLES)
    await database.dispose()
    return url


@pytest.fixture
def database_url(filled, server_url):
    return filled(server_url)


async def test_query_plan__one_sandbox_is_found_by_its_key(database):
    async def act(session):
        repository = SandboxRepository(session)
        await repository.get(_id(50_001), tenant_id="t")
        await repository.find(_id(50_001))
        await repository.lock(_id(50_001), tenant_id="t")
        await ActivityRepository(session).note([_id(50_001)], at_most_every=timedelta(seconds=10))
        await repository.find_of_session("t", "s3")

    for plan in await explain(database, act):
        assert rows_read(plan, "sandboxes") <= 3


async def test_query_plan__a_page_of_any_filter_reads_only_its_rows(database):
    async def act(session):
        repository = SandboxRepository(session)
        for wanted in _FILTERS:
            await repository.list_page("t", wanted, limit=_PAGE)
            await repository.list_page("t", wanted, limit=_PAGE, before=_id(50_000))

    plans = await explain(database, act)
    assert len(plans) == 2 * len(_FILTERS)
    for plan in plans:
        assert rows_read(plan, "sandboxes") <= 2 * _PAGE


async def test_query_plan__a_page_of_events_is_read_by_number(database):
    async def act(session):
        repository = EventRepository(session)
        await repository.list_page("t", after=50_000, limit=_PAGE)
        await repository.list_page("t", sandbox_id=_id(3), limit=_PAGE)

    for plan in await explain(database, act):
        assert rows_read(plan, "events") <= _PAGE


async def test_query_plan__keys_are_found_by_index(database):
    async def act(session):
        await KeyRepository(session).find_valid(b"none")
        with pytest.raises(IdempotencyMismatch):
            await IdempotencyRepository(session).claim(
                "t", Idempotency(key="k3", digest=b"other"), resource="sandbox", resource_id="r"
            )

    by_hash, _, by_key = await explain(database, act)
    assert reads_by_index(by_hash, "api_keys_hash_key")
    assert reads_by_index(by_key, "idempotency_pkey")


async def test_query_plan__tickets_are_found_without_expired_ones(database):
    async def act(session):
        repository = TicketRepository(session)
        await repository.find_valid(b"none")
        await repository.count("t", limit=1000)

    by_hash, counted = await explain(database, act)
    assert reads_by_index(by_hash, "tickets_pkey")
    assert rows_read(counted, "tickets") <= 100


async def test_query_plan__sandboxes_of_a_backend_are_read_without_ended_ones(database):
    async def act(session):
        repository = DriftRepository(session)
        await repository.list_living("other")
        await repository.list_running("other")

    living, running = await explain(database, act)
    assert rows_read(living, "sandboxes") == 599
    assert rows_read(running, "sandboxes") == 99
