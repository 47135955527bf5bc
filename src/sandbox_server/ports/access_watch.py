import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from sandbox_http.upstream import Upstream, UpstreamLost
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.db.session import OUTAGES
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.errors import Unauthenticated

log = logging.getLogger(__name__)

LOOK_EVERY = timedelta(seconds=2)


class Watch:
    """Ends what is under way for callers who would not be let in any more: a WebSocket may be open for days."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._under_way: dict[Upstream, Caller] = {}
        self._lasting: set[Upstream] = set()
        self._asked = asyncio.Event()

    @contextmanager
    def over(self, upstream: Upstream, caller: Caller) -> Iterator[None]:
        """Watch over a connection that is a caller's for as long as the block lasts."""
        self._under_way[upstream] = caller
        self._asked.set()
        try:
            yield
        finally:
            del self._under_way[upstream]
            self._lasting.discard(upstream)

    def expect_no_end(self, upstream: Upstream) -> None:
        """Note that what goes over it has no end of its own."""
        self._lasting.add(upstream)

    def end_lasting(self) -> None:
        """Cut all that has no end of its own."""
        for upstream in list(self._lasting):
            upstream.abort(UpstreamLost())

    async def run(self) -> None:
        """Look again and again who is still let in, until cancelled."""
        while True:
            await self._asked.wait()
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            if not self._under_way:
                self._asked.clear()
            for caller in {each.secret_hash: each for each in self._under_way.values()}.values():
                with suppress(*OUTAGES):
                    await self._look(caller)

    async def _look(self, caller: Caller) -> None:
        if not await self._is_let_in(caller):
            theirs = [
                upstream
                for upstream, each in self._under_way.items()
                if each.secret_hash == caller.secret_hash
            ]
            for upstream in theirs:
                upstream.abort(Unauthenticated())
            log.info("passing ended key_id=%s connections=%d", caller.key_id, len(theirs))

    async def _is_let_in(self, caller: Caller) -> bool:
        try:
            by_now = await self._authenticator.recheck(caller)
        except Unauthenticated:
            return False
        return by_now.may(Scope.SANDBOXES) or not caller.may(Scope.SANDBOXES)
