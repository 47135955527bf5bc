import asyncio


class Heard:
    """What a command or a terminal has said so far; given to the SDK as its callback."""

    def __init__(self) -> None:
        self.data = b""
        self._more = asyncio.Event()

    def __call__(self, data: str | bytes) -> None:
        self.data += data.encode() if isinstance(data, str) else data
        self._more.set()

    async def wait_for(self, wanted: bytes, *, timeout: float = 15) -> None:
        """Wait until it has said this."""
        try:
            async with asyncio.timeout(timeout):
                while wanted not in self.data:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"{wanted!r} is not in {self.data[-2000:]!r}") from None
