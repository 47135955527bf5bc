import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(
    condition: Callable[[], Awaitable[T]], *, timeout: float = 15, pause: float = 0.02
) -> T:
    """Wait until the asynchronous condition holds; gives what it gave."""
    async with asyncio.timeout(timeout):
        while not (result := await condition()):  # noqa: ASYNC110 - other processes tell nobody
            await asyncio.sleep(pause)
    return result
