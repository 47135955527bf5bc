import time
from collections.abc import Callable
from datetime import timedelta

from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import RateLimited

_BURST_SECONDS = 1.0
_ROUNDING = 1e-9  # the sum of many tokens is not exact


class RateLimit:
    """A bucket of tokens per key, in this process: a second's worth at once, then as they are refilled.

    Kept is only when a bucket will be full again, so an idle key costs nothing.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_at: dict[str, float] = {}

    def take(self, caller: Caller) -> None:
        """Take one token; refuse, and say when there will be one, if there is none."""
        if caller.rate_per_s is None:
            return
        now, token = self._clock(), 1 / caller.rate_per_s
        refilled_at = max(self._full_at.get(caller.key_id, now), now) + token
        missing = refilled_at - now - max(_BURST_SECONDS, token)
        if missing > _ROUNDING:
            raise RateLimited(per_second=caller.rate_per_s, retry_after=timedelta(seconds=missing))
        self._full_at[caller.key_id] = refilled_at
