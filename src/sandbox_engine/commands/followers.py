from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from sandbox_engine.commands.outcome import Ended
from sandbox_engine.commands.spool import Output, Spool, SpoolFull

_BACKLOG_BYTES = 1 << 20
_BACKLOG_FULL_BYTES = _BACKLOG_BYTES // 2  # leaves room for data that was read already


class SandboxGone(Exception):
    """The sandbox stopped answering; the message is the reason."""


class Follower:
    """One reader of a command's output; slow readers do not delay others."""

    def __init__(
        self, spool: Spool, *, ending: Callable[[], Ended], release: Callable[[], None]
    ) -> None:
        self._spool = spool
        self._ending = ending
        self._leave = release

    async def receive(self) -> Output | Ended:
        """Return the next piece of output; after the last piece, the result of the command."""
        output = await self._spool.get()
        return self._ending() if output is None else output

    async def __aiter__(self) -> AsyncIterator[Output | Ended]:
        try:
            while True:
                item = await self.receive()
                yield item
                if isinstance(item, Ended):
                    return
        finally:
            self.close()

    def close(self) -> None:
        """Stop following."""
        self._leave()
        self._spool.close()


class Followers:
    """The followers of a command; output is buffered until the first one arrives."""

    def __init__(self, spool_dir: Path) -> None:
        self._spool_dir = spool_dir
        self._spools: set[Spool] = set()
        self._backlog: deque[Output] | None = deque()
        self._backlog_bytes = 0
        self._ended: Ended | None = None

    @property
    def backlog_is_full(self) -> bool:
        """Return whether nobody follows and the buffer would soon drop its oldest output."""
        return self._backlog_bytes >= _BACKLOG_FULL_BYTES

    def join(self) -> Follower:
        """Add a follower; the first one also gets the buffered output."""
        spool = Spool(self._spool_dir)
        backlog, self._backlog, self._backlog_bytes = self._backlog or (), None, 0
        for output in backlog:
            spool.put(output)
        if self._ended is not None:
            spool.end()
        else:
            self._spools.add(spool)
        return Follower(spool, ending=self._ending, release=lambda: self._spools.discard(spool))

    def publish(self, output: Output) -> bool:
        """Pass output to all followers; returns whether there is any."""
        if self._backlog is not None:
            self._append(self._backlog, output)
        for spool in tuple(self._spools):
            try:
                spool.put(output)
            except SpoolFull:  # its reader gets an error; the command and other readers continue
                self._spools.discard(spool)
        return bool(self._spools)

    def finish(self, ended: Ended) -> None:
        """Report the result of the command to all followers, after unread output."""
        self._ended = ended
        while self._spools:
            self._spools.pop().end()

    def dismiss(self, error: Exception) -> None:
        """Disconnect all followers."""
        while self._spools:
            self._spools.pop().end(error)

    def _ending(self) -> Ended:
        assert self._ended is not None, "a spool ends only with its command"
        return self._ended

    def _append(self, backlog: deque[Output], output: Output) -> None:
        backlog.append(output)
        self._backlog_bytes += len(output.data)
        while self._backlog_bytes > _BACKLOG_BYTES:
            self._backlog_bytes -= len(backlog.popleft().data)
