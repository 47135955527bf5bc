import asyncio
import os
from collections.abc import Sequence

from sandbox_engine.keeper.message_socket import Message


class HeldCommand:
    """A command held by the keeper, with the engine's descriptors of it.

    `descriptors` contains `stdin`, `stdout` and `stderr`, or `pty`, and `process`, a pidfd. `ended`
    resolves to the wait status, or None if it was lost with a keeper.
    """

    def __init__(self, message: Message, descriptors: Sequence[int]) -> None:
        self.key: str = message["key"]
        self.pid: int = message["pid"]
        self.host_pid: int = message["host_pid"]
        self.descriptors = dict(zip(message["names"], descriptors, strict=True))
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int | None] = self._loop.create_future()
        self._watched = False
        if message["status"] is not None:
            self.ended.set_result(message["status"])

    @property
    def owner(self) -> str:
        return self.key.rpartition("-")[0]

    def record_end(self, status: int | None) -> None:
        """Record how the process ended."""
        self._unwatch()
        if not self.ended.done():
            self.ended.set_result(status)

    def watch(self) -> None:
        """Watch for the end of the process without a keeper; its status is lost."""
        process = self.descriptors.get("process")
        if process is not None and not self.ended.done():
            self._loop.add_reader(process, self.record_end, None)
            self._watched = True

    def close(self, name: str) -> None:
        if (descriptor := self.descriptors.pop(name, None)) is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        self._unwatch()
        for name in tuple(self.descriptors):
            self.close(name)

    def _unwatch(self) -> None:
        if self._watched:
            self._loop.remove_reader(self.descriptors["process"])
            self._watched = False
