import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from sandbox_server.domain.access import Caller
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import SandboxController

_TTL_S = 0.5
_MAX_ENTRIES = 10_000

_Key = tuple[str, str]


@dataclass(frozen=True)
class _CacheEntry:
    used: UsableSandbox
    until: float


class SandboxResolver:
    """Finds running sandboxes for proxied requests; a page may send hundreds at once.

    A result is cached for half a second. Concurrent requests share one lookup, so that they resume a sandbox once.
    """

    def __init__(self, controller: SandboxController) -> None:
        self._controller = controller
        self._cache: OrderedDict[_Key, _CacheEntry] = OrderedDict()
        self._lookups: dict[_Key, asyncio.Task[UsableSandbox]] = {}

    async def find(self, caller: Caller, sandbox_id: str, *, fresh: bool) -> UsableSandbox:
        """Return a running sandbox. `fresh` skips the cache, for requests that cannot be retried."""
        key = caller.tenant_id, sandbox_id
        cached = self._cache.get(key)
        now = asyncio.get_running_loop().time()
        if cached is not None and now < cached.until and not fresh:
            return cached.used
        task = self._lookups.get(key)
        if task is None:
            task = asyncio.create_task(self._find(caller, key, now))
            self._lookups[key] = task
            task.add_done_callback(lambda _: self._lookups.pop(key))
        return await asyncio.shield(task)

    async def _find(self, caller: Caller, key: _Key, now: float) -> UsableSandbox:
        used = await self._controller.use(caller, key[1])
        self._cache[key] = _CacheEntry(used, until=now + _TTL_S)
        self._cache.move_to_end(key)
        if len(self._cache) > _MAX_ENTRIES:
            self._cache.popitem(last=False)
        return used
