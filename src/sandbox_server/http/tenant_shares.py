from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandbox_server.domain.errors import LimitReached


class TenantShares:
    """Counts what each tenant has under way at one server, and refuses more than it may have."""

    def __init__(self, most: int, refusal: Callable[[int], LimitReached]) -> None:
        self._most = most
        self._refusal = refusal
        self._taken: defaultdict[str, int] = defaultdict(int)

    @contextmanager
    def one_more(self, tenant_id: str) -> Iterator[None]:
        """Count one while the block lasts."""
        if self._taken[tenant_id] >= self._most:
            raise self._refusal(self._most)
        self._taken[tenant_id] += 1
        try:
            yield
        finally:
            self._taken[tenant_id] -= 1
            if not self._taken[tenant_id]:
                del self._taken[tenant_id]
