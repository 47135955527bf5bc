from datetime import UTC, datetime, timedelta

_MOST = 3
_POSTPONED = timedelta(seconds=10)
_PAUSES = (timedelta(seconds=1), timedelta(seconds=3))


class Attempts:
    """How it went to make one kind of sandbox ready; given up after the third failure."""

    def __init__(self) -> None:
        self.failures = 0
        self.reason = ""
        self.next_try: datetime | None = None

    @property
    def is_given_up(self) -> bool:
        return self.failures >= _MOST

    @property
    def may_try(self) -> bool:
        is_due = self.next_try is None or self.next_try <= datetime.now(UTC)
        return is_due and not self.is_given_up

    def begin(self) -> None:
        self.next_try = None

    def postpone(self, reason: str) -> None:
        """Wait for what is no failure of the sandbox's."""
        self.reason = reason
        self.next_try = datetime.now(UTC) + _POSTPONED

    def fail(self, reason: str) -> None:
        """Note a failure; the next attempt waits longer."""
        self.failures += 1
        self.reason = reason
        if not self.is_given_up:
            self.next_try = datetime.now(UTC) + _PAUSES[self.failures - 1]

    def succeed(self) -> None:
        """Note a success, which makes earlier failures the past."""
        self.failures, self.reason, self.next_try = 0, "", None
