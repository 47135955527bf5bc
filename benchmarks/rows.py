from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.queues.postgres import running_postgres
from benchmarks.report import Figure
from benchmarks.timing import medians, timed
from sandbox_server.db.schema_migrations import upgrade
from sandbox_server.db.session import create_engine, create_sessions, without_transaction
from sandbox_server.sandboxes.repositories.sandboxes import SandboxFilter, SandboxRepository

_FEW = 1_000
_MANY = 100_000
_ROUNDS = 40
_ASKED = 20
_PAGE = 50
_TENANT = "INSERT INTO tenants (id, name, max_running, max_queued) VALUES ('t', 'T', 100, 100)"
# One in ten has not ended; all are old.
_SANDBOXES = text(
    "INSERT INTO sandboxes (id, tenant_id, template, user_id, state, target, timeout, ended_at)"
    " SELECT lpad(n::text, 20, '0'), 't', 'base', 'u' || n % :users,"
    " CASE WHEN n % 10 = 0 THEN 'paused' ELSE 'stopped' END, 'paused', interval '1 hour',"
    " CASE WHEN n % 10 <> 0 THEN now() END FROM generate_series(1, :rows) AS n"
)


async def rows() -> AsyncIterator[Figure]:
    """Compare queries on many rows and on few: one sandbox, a page of all, a page of one user's."""
    with running_postgres() as url:
        async with _filled(url, _MANY) as many, _filled(url, _FEW) as few:
            p50, floor_p50 = await medians(
                lambda: _ask(many, _MANY), lambda: _ask(few, _FEW), rounds=_ROUNDS
            )
    yield Figure(f"reads of {_MANY} rows / {_FEW}", p50, "ms", target=1.3, floor=floor_p50)


async def _ask(engine: AsyncEngine, count: int) -> float:
    async def read() -> None:
        async with without_transaction(create_sessions(engine)) as session:
            repository = SandboxRepository(session)
            for _, number in zip(range(_ASKED), cycle((count // 2, count)), strict=False):
                id_ = f"{number:020}"
                await repository.get(id_, tenant_id="t")
                await repository.list_page("t", SandboxFilter(), limit=_PAGE, before=id_)
                mine = SandboxFilter(user_id="u0")
                await repository.list_page("t", mine, limit=_PAGE, before=id_)
                session.expunge_all()

    elapsed, _ = await timed(read())
    return elapsed


@asynccontextmanager
async def _filled(url: str, count: int) -> AsyncIterator[AsyncEngine]:
    name = f"rows_{count}"
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    engine = create_engine(url.replace("/postgres?", f"/{name}?"))
    await upgrade(engine)
    async with engine.begin() as transaction:
        await transaction.execute(text(_TENANT))
        # Each user has a hundred.
        await transaction.execute(_SANDBOXES, {"rows": count, "users": count // 100})
        await transaction.execute(text("ANALYZE sandboxes"))
    yield engine
    await engine.dispose()
