import time
from collections.abc import Callable


class Deadline:
    """A time limit over several waits; None means no limit."""

    def __init__(
        self, seconds: float | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._over = None if seconds is None else clock() + seconds

    @property
    def left(self) -> float | None:
        return None if self._over is None else max(0.0, self._over - self._clock())

    @property
    def is_over(self) -> bool:
        return self.left == 0

    def lasts(self, seconds: float) -> bool:
        """Whether more than this is left."""
        return self.left is None or self.left > seconds

    def at_most(self, seconds: float) -> float:
        """Cap a duration at the time left."""
        return seconds if self.left is None else min(seconds, self.left)
