import asyncio
import os
from collections.abc import Callable, Mapping

from sandbox_engine.commands.spool import Output, Stream

CHUNK_BYTES = 1 << 16
_MOST_LEFT_BYTES = 1 << 20  # the capacity of a pipe


class Drain:
    """Reads the outputs of a command until all are closed."""

    def __init__(
        self,
        outputs: Mapping[Stream, int],
        *,
        deliver: Callable[[Output], None],
        exhausted: Callable[[], None],
    ) -> None:
        self._outputs = dict(outputs)
        self._deliver = deliver
        self._exhausted = exhausted
        self._loop = asyncio.get_running_loop()
        self.resume()

    @property
    def is_exhausted(self) -> bool:
        return not self._outputs

    def pause(self) -> None:
        """Stop reading; output stays in the pipes."""
        for descriptor in self._outputs.values():
            self._loop.remove_reader(descriptor)

    def resume(self) -> None:
        for stream, descriptor in self._outputs.items():
            self._loop.add_reader(descriptor, self._read, stream, descriptor)

    def take_rest(self) -> None:
        """Read only what is available now: a background process may keep writing."""
        for stream, descriptor in tuple(self._outputs.items()):
            for _ in range(_MOST_LEFT_BYTES // CHUNK_BYTES):
                if not self._read(stream, descriptor):
                    break

    def stop(self) -> None:
        self.pause()
        self._outputs.clear()

    def _read(self, stream: Stream, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the other side of the terminal is closed
            data = b""
        if data:
            self._deliver(Output(stream, data))
            return True
        self._loop.remove_reader(descriptor)
        self._outputs.pop(stream, None)
        if not self._outputs:
            self._exhausted()
        return False


class Input:
    """Writes to standard input or a terminal in the order of the requests."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self._loop = asyncio.get_running_loop()
        self._order = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None

    async def write(self, data: bytes) -> None:
        """Write everything; waits for space, raises BrokenPipeError when the command has ended."""
        async with self._order:
            left = memoryview(data)
            while left:
                if self._descriptor is None:
                    raise BrokenPipeError
                try:
                    left = left[os.write(self._descriptor, left) :]
                except BlockingIOError:
                    await self._wait_for_room(self._descriptor)

    def close(self) -> None:
        """Stop writing; the owner of the descriptor closes it."""
        if self._descriptor is not None and self._room is not None:
            self._loop.remove_writer(self._descriptor)
            self._set_room()
        self._descriptor = None

    async def _wait_for_room(self, descriptor: int) -> None:
        self._room = self._loop.create_future()
        self._loop.add_writer(descriptor, self._set_room)
        try:
            await self._room
        finally:
            self._room = None
            if self._descriptor is not None:
                self._loop.remove_writer(descriptor)

    def _set_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
