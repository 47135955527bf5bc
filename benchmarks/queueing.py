from collections.abc import AsyncIterator

from benchmarks.queues.drain import Drain
from benchmarks.queues.others import pgqueuer, procrastinate
from benchmarks.queues.ours import ours
from benchmarks.queues.postgres import running_postgres
from benchmarks.report import Figure
from benchmarks.timing import medians

_ROUNDS = 5
_JOBS = 10_000
_FEW_JOBS = 500  # procrastinate claims one at a time


async def queues() -> AsyncIterator[Figure]:
    """Compare queues on one PostgreSQL: many jobs that do nothing are claimed and acknowledged."""
    with running_postgres() as url:
        async with ours(url) as our, pgqueuer(url) as their:
            yield await _compare(our, their, name="pgqueuer", jobs=_JOBS)
        async with ours(url) as our, procrastinate(url) as their:
            yield await _compare(our, their, name="procrastinate", jobs=_FEW_JOBS)


async def _compare(our: Drain, their: Drain, *, name: str, jobs: int) -> Figure:
    p50, floor_p50 = await medians(lambda: our(jobs), lambda: their(jobs), rounds=_ROUNDS)
    title = f"claim + settle of {jobs} jobs / {name}"
    return Figure(title, p50, "ms", target=1, floor=floor_p50)
