"""Which requests are retried, and after what delay: those not carried out, or safe to repeat."""

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
from sandbox_client.protocol.deadline import Deadline

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 10.0

_UNAVAILABLE = 503
_OF_GATEWAYS = frozenset({502, 503, 504})
# Like NotReady, these are raised before anything is carried out.
_REJECTED_EARLY = (RateLimited, TooManyAtOnce)


class Retries:
    """The attempts of one request. A rejecting server is retried longer than an unreachable one."""

    def __init__(
        self,
        deadline: Deadline,
        *,
        outage: Deadline | None = None,
        may_repeat: bool,
        may_wait: bool = True,
    ) -> None:
        self._patience = deadline
        self._outage = outage or deadline
        self._may_repeat = may_repeat
        self._may_wait = may_wait
        self._delay = FIRST_DELAY_S
        self.was_lost = False
        """Whether an attempt may have been carried out although its response was lost."""

    def delay_after(self, error: SandboxError) -> float:
        """Return the delay before the next attempt in seconds; raise the error if there is none."""
        if not self._is_retryable(error):
            raise error
        self.was_lost |= isinstance(error, Unreachable) and error.was_sent
        delay = max(getattr(error, "retry_after", None) or 0.0, self._next_delay())
        deadline = self._patience if _is_rejection(error) else self._outage
        if not deadline.lasts(delay):
            raise error
        return delay

    def _is_retryable(self, error: SandboxError) -> bool:
        match error:
            case Unreachable():
                return self._may_repeat or not error.was_sent
            case NotReady():
                return self._may_wait
            case UnexpectedAnswer():
                return self._may_repeat and error.status in _OF_GATEWAYS
            case ApiError():
                passes = self._may_repeat and error.status == _UNAVAILABLE
                return passes or isinstance(error, _REJECTED_EARLY)
        return False

    def _next_delay(self) -> float:
        delay, self._delay = self._delay, min(LONGEST_DELAY_S, self._delay * 2)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter


def _is_rejection(error: SandboxError) -> bool:
    return isinstance(error, ApiError) and not isinstance(error, UnexpectedAnswer)
