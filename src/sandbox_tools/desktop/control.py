"""Who may use pointer and keyboard: the agent, or a person who took over."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class Holder(StrEnum):
    AGENT = "agent"
    PERSON = "person"


class PersonHasControl(Exception):
    """A person has control, so the agent's input is refused."""

    def __init__(self) -> None:
        super().__init__(
            "A person has control of the desktop. Wait until they return it; screenshots are possible meanwhile."
        )


class Control:
    """Lets one action of the agent at a time have the input, and takes it away when a person takes over."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._action: asyncio.Task[object] | None = None
        self._released: list[Callable[[], None]] = []
        self.holder = Holder.AGENT

    @property
    def is_with_person(self) -> bool:
        return self.holder is Holder.PERSON

    async def run_as_agent(self, act: Callable[[], Awaitable[T]]) -> T:
        """Run an action; a person who takes over ends it."""
        async with self._turn:
            if self.is_with_person:
                raise PersonHasControl
            action = asyncio.ensure_future(act())
            self._action = action
            try:
                return await action
            except asyncio.CancelledError:
                if self.is_with_person:
                    raise PersonHasControl from None
                action.cancel()
                raise
            finally:
                self._action = None

    async def pass_to(self, holder: Holder) -> None:
        """Give control; returns when nobody else's input can follow."""
        self.holder = holder
        if holder is Holder.AGENT:
            for release in self._released:
                release()
            return
        if self._action is not None:
            self._action.cancel()
            await asyncio.wait([self._action])

    def on_return(self, release: Callable[[], None]) -> Callable[[], None]:
        """Call `release` whenever control returns to the agent; call the result to end that."""
        self._released.append(release)
        return lambda: self._released.remove(release)
