from typing import Annotated

import pytest
from fastapi import APIRouter
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker

from sandbox_server.access.secrets import new_secret
from sandbox_server.db.session import Sessions, create_engine, create_sessions
from sandbox_server.http.deps import Reader, depends_on
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of

FAILING = {
    "cut": "SELECT pg_terminate_backend(pg_backend_pid())",
    "cancelled": "DO $$ BEGIN RAISE SQLSTATE '57014'; END $$",
    "shutting-down": "DO $$ BEGIN RAISE SQLSTATE '57P03'; END $$",
    "deadlock": "DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$",
    "full": "DO $$ BEGIN RAISE SQLSTATE '53100'; END $$",
    "mistaken": "SELECT 1 / 0",
    "unique": "DO $$ BEGIN RAISE SQLSTATE '23505'; END $$",
}
SessionsDep = Annotated[Sessions, depends_on(async_sessionmaker)]
OURS = {"mistaken", "unique"}


@pytest.fixture
def app(app):
    router = APIRouter(prefix="/v1/test")

    @router.get("/{name}")
    async def fail(name: str, caller: Reader, sessions: SessionsDep) -> None:
        async with sessions.begin() as session:
            await session.execute(text(FAILING[name]))

    app.include_router(router)
    return app


@pytest.mark.parametrize("name", sorted(set(FAILING) - OURS))
async def test_database_outage__transient_errors_are_answered_503(admin, name):
    answer = await admin.get(f"/v1/test/{name}")
    assert_problem(answer, status=503, code="database-unavailable")
    assert answer.headers["retry-after"] == "2"


@pytest.mark.parametrize("name", sorted(OURS))
async def test_database_outage__programming_errors_are_answered_500(admin, name):
    assert_problem(await admin.get(f"/v1/test/{name}"), status=500, code="internal-error")


async def test_database_outage__an_unreachable_database_is_answered_503(components, app):
    nowhere = create_engine("postgresql://nobody@127.0.0.1:1/none")
    components.authenticator._sessions = create_sessions(nowhere)
    async with caller_of(app, new_secret()) as caller:
        answer = await caller.get("/v1/keys")
    assert_problem(answer, status=503, code="database-unavailable")
    assert "127.0.0.1" not in answer.text
