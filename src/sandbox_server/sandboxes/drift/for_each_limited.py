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
    """Call `act` for each item with limited concurrency; a failure does not stop the others."""
    limit = asyncio.Semaphore(at_once)

    async def act_on(one: T) -> None:
        async with limit:
            try:
                await act(one)
            except BackendError as error:
                log.warning("left for the next drift check error=%s", error)
            except Exception:
                log.exception("left for the next drift check")

    async with asyncio.TaskGroup() as group:
        for one in several:
            group.create_task(act_on(one))
