"""The periodic check of one backend, with intervals of the test's own."""

from datetime import timedelta

from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs import kinds
from sandbox_server.providers.repository import BackendRepository
from sandbox_server.sandboxes.drift.checker import CheckIntervals
from sandbox_server.sandboxes.drift.liveness import LivenessTimeouts
from tests.server.support.fault_proxy import answer_with
from tests.server.support.managed_sandboxes import HOUR, MINUTE

LIST = "GET /v2/sandboxes"
HEALTH = "GET /health"
AT_ONCE = timedelta()
NOT_RUNNING = answer_with(502)
JOB = LeasedJob(id=1, kind=kinds.DRIFT_CHECK, subject="local", attempts=1, leased_by="a")


def patrol_of(living, *, again=HOUR, busy_for=HOUR, answer_within=MINUTE, each=MINUTE):
    return living.drift_checker(
        intervals=CheckIntervals(again=again, busy_for=busy_for, answer_within=answer_within),
        timeouts=LivenessTimeouts(each=each, between=AT_ONCE, all=HOUR),
    )


async def patrol(living, **intervals):
    """Look at the backend once."""
    return await patrol_of(living, **intervals).check(JOB)


async def backend_row(living):
    async with living.sessions() as session:
        return await BackendRepository(session).get(living.backend_name)
