import asyncio
from datetime import timedelta
from time import perf_counter

from sandbox_server.metrics.instruments import LOOP_LAG_SECONDS

_EVERY = timedelta(milliseconds=250)


async def watch_event_loop(*, every: timedelta = _EVERY) -> None:
    """Note how late the loop wakes who sleeps, until cancelled."""
    while True:
        due = perf_counter() + every.total_seconds()
        await asyncio.sleep(every.total_seconds())
        LOOP_LAG_SECONDS.observe(max(perf_counter() - due, 0))
