import asyncio
from datetime import timedelta


class Patience:
    """How long a caller waits, through all that it waits for."""

    def __init__(self, seconds: float) -> None:
        self._over = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> timedelta:
        return timedelta(seconds=max(0, self._over - asyncio.get_running_loop().time()))
