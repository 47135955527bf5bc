import asyncio

import pytest
from sqlalchemy import insert

from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Tenant
from sandbox_server.domain.errors import IdempotencyMismatch
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import Idempotency
from tests.server.jobs.job_actions import wait_for_a_lock

TENANT = "t" * 20


@pytest.fixture
async def claim(sessions):
    """Claim a key for a resource of a new id, as a transaction of its own."""
    async with sessions.begin() as session:
        await session.execute(
            insert(Tenant).values(id=TENANT, name="one", max_running=1, max_queued=1)
        )

    async def claim(body, key="key"):
        async with sessions.begin() as session:
            return await claim_in(session, body, key=key)

    return claim


async def claim_in(session, body=1, key="key"):
    request = Idempotency.of(key, method="POST", path="/v1/things", body=body)
    return await IdempotencyRepository(session).claim(
        TENANT, request, resource="thing", resource_id=new_id()
    )


async def test_idempotency__a_repetition_gets_the_first_result(claim):
    assert await claim({"a": 1}) == await claim({"a": 1})
    assert await claim({"a": 1}, key="other") != await claim({"a": 1})


async def test_idempotency__another_request_with_the_same_key_is_refused(claim):
    await claim({"a": 1})
    with pytest.raises(IdempotencyMismatch):
        await claim({"a": 2})


async def test_idempotency__fifty_concurrent_requests_get_one_result(claim):
    assert len(set(await asyncio.gather(*(claim(1) for _ in range(50))))) == 1


async def test_idempotency__a_rolled_back_request_leaves_no_key(claim, sessions):
    async with sessions() as failing:
        lost = await claim_in(failing)
        second = asyncio.create_task(claim(1))
        await wait_for_a_lock(sessions)
        await failing.rollback()
    assert await second != lost
