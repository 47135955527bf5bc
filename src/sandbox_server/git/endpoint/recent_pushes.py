import time
from datetime import timedelta

_RECENT = timedelta(minutes=2)


class RecentPushes:
    """The repositories that this server has pushed to a moment ago: their mirrors are behind until the next fetch."""

    def __init__(self) -> None:
        self._pushed_at: dict[str, float] = {}

    def note(self, repository_id: str) -> None:
        self._forget_old()
        self._pushed_at[repository_id] = time.monotonic()

    def has(self, repository_id: str) -> bool:
        self._forget_old()
        return repository_id in self._pushed_at

    def _forget_old(self) -> None:
        until = time.monotonic() - _RECENT.total_seconds()
        self._pushed_at = {key: at for key, at in self._pushed_at.items() if at > until}
