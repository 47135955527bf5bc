import asyncio

_TICK = 1.0
_LONGEST_TICK = 5.0


async def sleep_awake(seconds: float) -> None:
    """Sleep, not counting the time in which the whole sandbox was paused."""
    loop = asyncio.get_running_loop()
    left, before = seconds, loop.time()
    while left > 0:
        await asyncio.sleep(min(left, _TICK))
        now = loop.time()
        left -= min(now - before, _LONGEST_TICK)
        before = now
