from datetime import UTC, datetime, timedelta

_MOST = 3
_PAUSES = (timedelta(seconds=1), timedelta(seconds=3))
_UNTIL_THERE_IS_ROOM = timedelta(seconds=10)


class StartAttempts:
    """Attempts to start one kind of sandbox; gives up after three failures in a row."""

    def __init__(self) -> None:
        self.failures = 0
        self.reason = ""
        self.next_try: datetime | None = None

    @property
    def is_given_up(self) -> bool:
        return self.failures >= _MOST

    @property
    def may_try(self) -> bool:
        return not self.is_given_up and self.pause is None

    @property
    def pause(self) -> timedelta | None:
        """Time until the next attempt, if it has to wait."""
        if self.next_try is None or self.next_try <= (now := datetime.now(UTC)):
            return None
        return self.next_try - now

    def fail(self, reason: str) -> None:
        """Record a failure; the next pause is longer."""
        self.failures += 1
        self.reason = reason
        self.next_try = None
        if not self.is_given_up:
            self.next_try = datetime.now(UTC) + _PAUSES[self.failures - 1]

    def postpone(self, reason: str) -> None:
        """Wait for a reason other than a failed start."""
        self.reason = reason
        self.next_try = datetime.now(UTC) + _UNTIL_THERE_IS_ROOM

    def succeed(self) -> None:
        """Record a success, which resets the failures."""
        self.failures, self.reason, self.next_try = 0, "", None
