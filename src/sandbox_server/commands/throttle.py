import asyncio

_EVENTS = 256
_EVENTS_PER_S = 5000


class Pace:
    """Keeps one stream of small events from taking all of the process's time."""

    def __init__(self) -> None:
        self._count = 0
        self._since = asyncio.get_running_loop().time()

    async def keep(self) -> None:
        """Count an event, and rest where too many came too soon."""
        self._count += 1
        if self._count < _EVENTS:
            return
        now = asyncio.get_running_loop().time()
        early = self._since + _EVENTS / _EVENTS_PER_S - now
        self._count, self._since = 0, now + max(0.0, early)
        if early > 0:
            await asyncio.sleep(early)
