import asyncio
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")
_SETTLE_SECONDS = 0.05


async def timed(action: Awaitable[T]) -> tuple[float, T]:
    """Await the action; returns the milliseconds it took and its result."""
    start = perf_counter()
    result = await action
    return (perf_counter() - start) * 1000, result


async def medians(
    ours: Callable[[], Awaitable[float]], floor: Callable[[], Awaitable[float]], *, rounds: int
) -> tuple[float, float]:
    """Measure both alternately, so that other load on the machine affects both equally."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            # Background work of one must not count for the other.
            await asyncio.sleep(_SETTLE_SECONDS)
            times[which].append(await (ours, floor)[which]())
    return median(times[0]), median(times[1])
