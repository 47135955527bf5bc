import asyncio
from collections.abc import Callable


async def until(happened: Callable[[], object]) -> None:
    """Wait for what other processes do and tell nobody of."""
    async with asyncio.timeout(60):
        while True:
            if happened():
                return
            await asyncio.sleep(0.02)
