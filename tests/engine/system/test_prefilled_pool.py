import asyncio
import itertools

import pytest

from sandbox_engine.system.prefilled_pool import PrefilledPool


class BuildSandbox:
    """Makes numbered things when it may, and notes what becomes of them."""

    def __init__(self):
        self.numbers = itertools.count(1)
        self.open = asyncio.Event()
        self.open.set()
        self.under_way = 0
        self.most_under_way = 0
        self.attempts = 0
        self.broken = False
        self.discarded = []

    async def make(self):
        self.attempts += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.open.wait()
            if self.broken:
                raise OSError("no material")
            return next(self.numbers)
        finally:
            self.under_way -= 1

    async def discard(self, thing):
        self.discarded.append(thing)


async def until(condition):
    """Let the others go on until it is so."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - there is no event for what goes on in a pool
            await asyncio.sleep(0)


@pytest.fixture
def workshop():
    return BuildSandbox()


@pytest.fixture
async def pool(workshop):
    pool = PrefilledPool(workshop.make, workshop.discard, 3)
    yield pool
    workshop.open.set()
    await pool.close()


async def test_prefilled_pool__refills_one_at_a_time(workshop, pool):
    pool.refill()
    await until(lambda: len(pool) == 3)
    assert await pool.take() == 1
    await until(lambda: workshop.attempts == 4 and not workshop.under_way)
    assert workshop.most_under_way == 1


async def test_prefilled_pool__takers_do_not_wait_for_the_refill(workshop, pool):
    workshop.open.clear()
    pool.refill()
    await until(lambda: workshop.under_way == 1)
    takers = [asyncio.create_task(pool.take()) for _ in range(5)]
    await until(lambda: workshop.under_way == 6)
    workshop.open.set()
    assert len({await taker for taker in takers}) == 5


async def test_prefilled_pool__failure_reaches_the_taker_and_is_kept(workshop, pool):
    workshop.broken = True
    with pytest.raises(OSError, match="no material"):
        await pool.take()
    assert str(pool.failure) == "no material"
    workshop.broken = False
    await pool.take()
    assert pool.failure is None


async def test_prefilled_pool__failed_refill_is_not_repeated_at_once(workshop, pool):
    workshop.broken = True
    pool.refill()
    await until(lambda: workshop.attempts == 1 and not workshop.under_way)
    for _ in range(20):
        with pytest.raises(OSError, match="no material"):
            await pool.take()
    assert workshop.attempts == 21


async def test_prefilled_pool__failed_refill_is_retried_later(workshop, pool):
    workshop.broken = True
    pool.refill()
    await until(lambda: workshop.attempts == 1 and not workshop.under_way)
    workshop.broken = False
    await until(lambda: len(pool) == 3)


async def test_prefilled_pool__object_of_a_cancelled_taker_is_kept(workshop, pool):
    workshop.open.clear()
    takers = [asyncio.create_task(pool.take()) for _ in range(8)]
    await until(lambda: workshop.under_way == 8)
    for taker in takers:
        taker.cancel()
    await asyncio.wait(takers)
    workshop.open.set()
    await until(lambda: len(pool) + len(workshop.discarded) == workshop.attempts)
    assert len(pool) == 3


async def test_prefilled_pool__close_discards_everything(workshop, pool):
    pool.refill()
    await until(lambda: len(pool) == 3)
    workshop.open.clear()
    taken = await pool.take()
    await until(lambda: workshop.under_way == 1)
    closing = asyncio.create_task(pool.close())
    await asyncio.sleep(0)
    workshop.open.set()
    await closing
    assert sorted([taken, *workshop.discarded]) == [1, 2, 3, 4]
    pool.refill()
    assert not len(pool)
