"""Providers with sandboxes of other installations, and one look of the patrol at them."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from sandbox_server.domain.errors import BackendError
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs import kinds
from sandbox_server.jobs.policy import Backoff
from sandbox_server.providers.e2b import wire
from sandbox_server.providers.repository import BackendRepository
from sandbox_server.sandboxes.drift.checker import CheckIntervals
from sandbox_server.sandboxes.drift.liveness import LivenessTimeouts
from tests.server.jobs.running_scheduler import POLLING
from tests.server.providers.stand_in_provider import Dialect

FILTER_IGNORED = Dialect(ignores_filter=True)
OTHERS = [
    {wire.INSTALLATION: "another-server", wire.SANDBOX: "somebodys", wire.TENANT: "theirs"},
    {"team": "blue"},
    None,
]
AT_ONCE = timedelta()
QUICK = replace(POLLING, backoff=Backoff(first=timedelta(milliseconds=1)))


def others_at(provider):
    """List the sandboxes of others that are left, in the order of `OTHERS`."""
    theirs = list(provider.sandboxes.values())[: len(OTHERS)]
    return [one["metadata"] for one in theirs]


async def patrol(living):
    looking = living.drift_checker(
        intervals=CheckIntervals(again=AT_ONCE),
        timeouts=LivenessTimeouts(each=AT_ONCE, between=AT_ONCE, all=AT_ONCE),
    )
    job = LeasedJob(id=1, kind=kinds.DRIFT_CHECK, subject="imitated", attempts=1, leased_by="a")
    await looking.check(job)


async def backend_row(living):
    async with living.sessions() as session:
        return await BackendRepository(session).get("imitated")


async def settle_in_vain(living, sandbox_id, *, attempts):
    """Settle it as often as the queue does before it gives up, while the provider does not do it."""
    for attempt in range(1, attempts + 1):
        with suppress(BackendError):
            await living.settle(sandbox_id, attempt=attempt)
