import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from sqlalchemy import event, func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from sandbox_server.db.models import Sandbox, Tenant
from sandbox_server.db.session import create_engine
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import OnTimeout, State, Target
from tests.server.support.databases import EVERY_POSTGRES

pytestmark = EVERY_POSTGRES

TIMEOUT_S = 60


def tenant():
    return Tenant(id=new_id(), name="acme", max_running=1, max_queued=1)


async def test_session__rows_have_the_types_of_the_domain(sessions):
    owner = tenant()
    created = Sandbox(
        id=new_id(), tenant_id=owner.id, template="base", timeout=timedelta(hours=1, seconds=0.5)
    )
    async with sessions.begin() as session:
        session.add(owner)
        await session.flush()
        session.add(created)
    async with sessions() as session:
        sandbox = await session.get_one(Sandbox, created.id)
        now = await session.scalar(select(func.clock_timestamp()))
    assert sandbox.state is State.QUEUED
    assert sandbox.target is Target.RUNNING
    assert sandbox.on_timeout is OnTimeout.PAUSE
    assert sandbox.timeout == timedelta(hours=1, seconds=0.5)
    assert sandbox.labels == {}
    assert sandbox.created_at.tzinfo is not None
    assert sandbox.created_at <= now


async def test_session__rows_stay_readable_after_the_commit(sessions):
    async with sessions.begin() as session:
        session.add(owner := tenant())
    assert owner.name == "acme"
    assert owner.defaults == {}


@pytest.mark.parametrize(
    "broken",
    [
        {"state": "stopped"},
        {"state": "running", "ended_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"state": "paused", "expires_at": datetime(2026, 1, 1, tzinfo=UTC)},
    ],
    ids=["stopped without an end", "running after its end", "paused with a deadline"],
)
async def test_constraints__an_inconsistent_sandbox_is_refused(sessions, broken):
    async with sessions.begin() as session:
        session.add(owner := tenant())
    sandbox = Sandbox(
        id=new_id(), tenant_id=owner.id, template="base", timeout=timedelta(hours=1), **broken
    )
    with pytest.raises(IntegrityError):
        async with sessions.begin() as session:
            session.add(sandbox)


async def test_connection_pool__closed_connections_are_replaced(database, database_url):
    pooled = []
    event.listen(database.sync_engine, "connect", lambda raw, _: pooled.append(raw))
    async with database.connect() as one, database.connect() as other:
        await one.execute(text("SELECT 1"))
        await other.execute(text("SELECT 1"))
    await cut_off_everybody_else(database_url)
    async with asyncio.timeout(TIMEOUT_S):
        while not all(raw.driver_connection.is_closed() for raw in pooled):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with database.connect() as one, database.connect() as other:
        assert await one.scalar(text("SELECT 1")) == await other.scalar(text("SELECT 1")) == 1


async def cut_off_everybody_else(url):
    connection = await asyncpg.connect(url)
    await connection.execute(
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid()"""
    )
    await connection.close()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
async def test_database_url__means_the_same_as_for_psql(database_url, scheme):
    url = f"{scheme}://{database_url.partition('://')[2]}&sslmode=disable&application_name=mine"
    engine = create_engine(url)
    async with engine.connect() as connection:
        assert await connection.scalar(text("SHOW application_name")) == "mine"
    await engine.dispose()


async def test_database_error__does_not_quote_values(sessions):
    with pytest.raises(DBAPIError) as failed:
        async with sessions() as session:
            await session.execute(text("SELECT :secret, 1 / 0"), {"secret": "hunter2"})
    assert "hunter2" not in str(failed.value)
