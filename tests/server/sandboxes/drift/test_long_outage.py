"""A provider that is away for longer than anybody tries leaves nothing behind that nobody looks after."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs import kinds
from sandbox_server.jobs.policy import Backoff
from sandbox_server.sandboxes.drift.checker import CheckIntervals
from tests.engine.polling import until
from tests.server.jobs.running_scheduler import POLLING
from tests.server.support.in_process_server import running_server

pytestmark = pytest.mark.needs_engine

AT_ONCE = timedelta()
SOON_TIRED = replace(
    POLLING,
    backoff=Backoff(first=timedelta(milliseconds=10), longest=timedelta(milliseconds=20)),
    max_attempts=2,
)


@pytest.fixture
async def tiring(database, faulty):
    """Run a server that gives up soon, on a way to the provider that can be cut."""
    async with running_server(database, faulty, policy=SOON_TIRED) as server:
        yield server


async def _patrol(living):
    intervals = CheckIntervals(again=AT_ONCE, answer_within=timedelta(seconds=10))
    patrol = living.drift_checker(intervals=intervals)
    job = LeasedJob(id=1, kind=kinds.DRIFT_CHECK, subject="local", attempts=1, leased_by="a")
    await patrol.check(job)


async def test_long_outage__dead_jobs_are_retried_when_the_provider_is_back(tiring, faulty, proxy):
    runs, also_runs = await tiring.running(), await tiring.running()
    sleeps = await tiring.paused()
    await proxy.refuse()
    await _patrol(faulty)
    wanted = {runs.id: Target.PAUSED, also_runs.id: Target.GONE, sleeps.id: Target.GONE}
    for sandbox_id, target in wanted.items():
        await faulty.want(sandbox_id, target)
    for sandbox_id in wanted:
        await until(partial(_is_given_up, faulty, sandbox_id), timeout=60)

    await proxy.listen()
    await _patrol(faulty)

    await tiring.settled(runs.id, State.PAUSED)
    await tiring.settled(also_runs.id, State.STOPPED)
    await tiring.settled(sleeps.id, State.STOPPED)
    assert await faulty.provider_states() == ["paused"]


async def _is_given_up(living, sandbox_id):
    return (await living.job(kinds.SANDBOX, sandbox_id)).dead_at is not None
