import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.sandboxes.start_command import start_up
from sandbox_engine.system.errors import StartFailed


class Startups:
    """The sandboxes that come up at the moment, each of which can be told to give up."""

    def __init__(self, *, timeout: timedelta) -> None:
        self._timeout = timeout
        self._under_way: dict[str, asyncio.Future[str]] = {}

    @contextmanager
    def announced(self, sandbox_id: str) -> Iterator[None]:
        """Let the sandbox be told to give up, from before it has a container."""
        self._under_way[sandbox_id] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._under_way[sandbox_id]

    async def start_up(self, sandbox: Sandbox) -> None:
        """Run what the template starts, until it is ready or to be given up."""
        if not sandbox.record.starts_something:
            return
        given_up = self._under_way[sandbox.id]
        starting = asyncio.create_task(start_up(sandbox, timeout=self._timeout))
        try:
            await asyncio.wait((starting, given_up), return_when=asyncio.FIRST_COMPLETED)
            if given_up.done():
                raise StartFailed(given_up.result())
            await starting
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    def give_up(self, sandbox_id: str, reason: str) -> None:
        """Have the sandbox's start fail, if it is under way."""
        given_up = self._under_way.get(sandbox_id)
        if given_up is not None and not given_up.done():
            given_up.set_result(reason)

    def give_up_all(self, reason: str) -> None:
        for sandbox_id in self._under_way:
            self.give_up(sandbox_id, reason)
