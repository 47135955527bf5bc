"""The steps of what a server does, as others see them, and the one at which it is to be ended.

A step is a commit that changes sandboxes, snapshots, their jobs or events, or a call that changes something at the
provider. Between two of them a server may die wherever it likes: nobody can tell the difference.
"""

import asyncio
from enum import StrEnum


class Moment(StrEnum):
    BEFORE = "before"
    """What was asked for never arrives."""
    AFTER = "after"
    """It is carried out, and the answer is never read."""
    LATE = "late"
    """It is carried out after somebody else has finished; only a call can be under way for so long."""


class Lost(Exception):
    """What was held is never passed on."""


class Walk:
    """Counts steps, and holds the n-th until the test has ended who is at it."""

    def __init__(self, nth: int = 0, moment: Moment = Moment.AFTER) -> None:
        self._nth = nth
        self.moment = moment
        self.steps: list[str] = []
        self.passed_on: asyncio.Event = asyncio.Event()
        self._reached = asyncio.Event()
        self._let_go = asyncio.Event()

    @property
    def is_reached(self) -> bool:
        return self._reached.is_set()

    @property
    def nobody_knows(self) -> bool:
        """Tell whether it is held before anything at all was written down."""
        return (self._nth, self.moment) == (1, Moment.BEFORE)

    async def commit(self, step: str) -> bool:
        """Come to a commit; tells whether its answer is to be held."""
        if self.moment is Moment.LATE:
            return False
        return await self._come_to(step)

    async def call(self, step: str) -> bool:
        """Come to a call; tells whether its answer is to be held."""
        return await self._come_to(step)

    async def _come_to(self, step: str) -> bool:
        self.steps.append(step)
        if len(self.steps) != self._nth:
            return False
        if self.moment is not Moment.AFTER:
            await self.hold()
        if self.moment is Moment.BEFORE:
            raise Lost
        return True

    async def answered(self) -> None:
        """Hold the answer to a step that was passed on."""
        self.passed_on.set()
        await self.hold()

    async def hold(self) -> None:
        self._reached.set()
        await self._let_go.wait()

    def let_go(self) -> None:
        """Let what was held have its fate, now that nobody waits for it any more."""
        self._let_go.set()
