import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from sandbox_server.domain.errors import BackendError

T = TypeVar("T")

log = logging.getLogger(__name__)

AT_ONCE = 16


async def for_each_limited(
    several: Iterable[T], act: Callable[[T], Awaitable[None]], *, at_once: int = AT_ONCE
) -> None:
    """Do something about each, so many at once; where that fails, the others are gone on with."""
    turns = asyncio.Semaphore(at_once)

    async def do(one: T) -> None:
        async with turns:
            try:
                await act(one)
            except BackendError as error:
                log.warning("left for the next patrol error=%s", error)
            except Exception:
                log.exception("left for the next patrol")

    async with asyncio.TaskGroup() as group:
        for one in several:
            group.create_task(do(one))
