import asyncio
import contextlib
from collections import Counter
from dataclasses import replace

import pytest

from sandbox_server.db.models import Backend
from sandbox_server.db.notifications import Notifications
from sandbox_server.domain.jobs import ProviderSaturated
from sandbox_server.domain.state import State
from sandbox_server.jobs import kinds
from sandbox_server.jobs.policy import Policy
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.lifecycle import build_reconciliation
from sandbox_server.providers.protocol.limits import ProviderLimits, without_limits
from sandbox_server.providers.registry import Backends, KnownBackend
from tests.engine.polling import until
from tests.server.jobs.running_scheduler import POLLING
from tests.server.support.managed_sandboxes import new_living

CREATE = "POST /v2/sandboxes"


def shared(count, places):
    limits, told = ProviderLimits(count), []
    limits.share(places, on_free=lambda: told.append(1))
    return limits, told


def test_provider_limits__a_job_for_a_saturated_provider_is_released():
    limits, _ = shared(2, places=4)
    with limits.job():
        limits.enter("slow")
        with limits.job():
            limits.enter("slow")
            limits.enter("slow")
            assert limits.saturated == {"slow"}
            with limits.job(), pytest.raises(ProviderSaturated):
                limits.enter("slow")
            with limits.job():
                limits.enter("other")


def test_provider_limits__a_freed_slot_is_announced():
    limits, told = shared(2, places=2)
    with limits.job():
        limits.enter("slow")
        assert limits.saturated == {"slow"}
        assert not told
    assert limits.saturated == frozenset()
    assert told


def test_provider_limits__callers_and_patrols_are_not_counted():
    limits, _ = shared(2, places=2)
    for _ in range(3):
        limits.enter("slow")
    with limits.job(), without_limits():
        limits.enter("slow")
    assert limits.saturated == frozenset()


def test_provider_limits__a_single_backend_gets_all_worker_slots():
    limits, _ = shared(1, places=2)
    with contextlib.ExitStack() as jobs:
        for _ in range(9):
            jobs.enter_context(limits.job())
            limits.enter("only")
    assert limits.saturated == frozenset()


@pytest.fixture
async def at_two(sessions, backend_at, proxy):
    """Have a server look after sandboxes at two backends, one of which is behind the proxy."""
    limits = ProviderLimits(2)
    fast = await new_living(sessions, backend_at(limits=limits))
    slow = backend_at(proxy.url, name="slow", limits=limits)
    known = {
        name: KnownBackend(client=one) for name, one in (("local", fast.backend), ("slow", slow))
    }
    async with sessions.begin() as session:
        session.add(Backend(name="slow", capacity=100, state="up"))
    backends = Backends(known, limits=limits)
    core = build_reconciliation(sessions, backends, fast.vault)
    fast = replace(fast, backends=backends, core=core)
    return fast, replace(fast, backend_name="slow")


@contextlib.asynccontextmanager
async def working(database, living, *, policy: Policy):
    scheduler = SandboxQueueScheduler(
        living.sessions,
        {kinds.SANDBOX: living.reconciler.reconcile},
        Notifications(database),
        policy=policy,
        limits=living.backends.limits,
    )
    task = asyncio.create_task(scheduler.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def wait_running(living, sandbox_id):
    async def runs():
        return (await living.row(sandbox_id)).state is State.RUNNING

    await until(runs, timeout=60)


@pytest.mark.needs_engine
async def test_provider_limits__a_hanging_backend_takes_no_slots_of_another(
    database, at_two, proxy
):
    fast, slow = at_two
    answers = asyncio.Event()

    async def answer_later(exchange):
        await answers.wait()
        await exchange.relay()

    proxy.on(CREATE, answer_later, times=100)
    held = [await slow.admitted() for _ in range(6)]
    async with working(database, fast, policy=replace(POLLING, slots=4)):
        await until(lambda: proxy.has_seen(CREATE, times=2), timeout=60)

        for _ in range(3):
            sandbox_id = await fast.admitted()
            await wait_running(fast, sandbox_id)
        assert Counter(proxy.seen)[CREATE] == 2

        answers.set()
        for sandbox_id in held:
            await wait_running(slow, sandbox_id)
