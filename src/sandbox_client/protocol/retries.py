"""What is tried again, and after how long: only what did not happen, or may happen twice."""

import random

from sandbox_client.errors import (
    ApiError,
    NotReady,
    RateLimited,
    SandboxError,
    TooManyAtOnce,
    UnexpectedAnswer,
    Unreachable,
)
from sandbox_client.protocol.deadline import Patience

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0

_UNAVAILABLE = 503
_OF_GATEWAYS = frozenset({502, 503, 504})
# These are said before anything is done, and so is NotReady.
_REFUSED_AT_ONCE = (RateLimited, TooManyAtOnce)


class Retries:
    """The attempts at one request: a server that refuses is waited for longer than one that is not there."""

    def __init__(
        self,
        patience: Patience,
        *,
        outage: Patience | None = None,
        may_repeat: bool,
        may_wait: bool = True,
    ) -> None:
        self._patience = patience
        self._outage = outage or patience
        self._may_repeat = may_repeat
        self._may_wait = may_wait
        self._pause = FIRST_PAUSE_S
        self.was_lost = False
        """Whether an attempt may have been carried out though its answer never came."""

    def pause_after(self, error: SandboxError) -> float:
        """Tell for how many seconds to wait before the next attempt; raises the error where there is to be none."""
        if not self._is_worth_it(error):
            raise error
        self.was_lost |= isinstance(error, Unreachable) and error.was_sent
        pause = max(getattr(error, "retry_after", None) or 0.0, self._next_pause())
        patience = self._patience if _is_refusal(error) else self._outage
        if not patience.lasts(pause):
            raise error
        return pause

    def _is_worth_it(self, error: SandboxError) -> bool:
        match error:
            case Unreachable():
                return self._may_repeat or not error.was_sent
            case NotReady():
                return self._may_wait
            case UnexpectedAnswer():
                return self._may_repeat and error.status in _OF_GATEWAYS
            case ApiError():
                passes = self._may_repeat and error.status == _UNAVAILABLE
                return passes or isinstance(error, _REFUSED_AT_ONCE)
        return False

    def _next_pause(self) -> float:
        pause, self._pause = self._pause, min(LONGEST_PAUSE_S, self._pause * 2)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that not all come back at once


def _is_refusal(error: SandboxError) -> bool:
    return isinstance(error, ApiError) and not isinstance(error, UnexpectedAnswer)
