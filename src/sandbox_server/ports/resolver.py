import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from sandbox_server.domain.access import Caller
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import SandboxController

_TRUSTED_SECONDS = 0.5
_MOST = 10_000

_Key = tuple[str, str]


@dataclass(frozen=True)
class _Known:
    used: UsableSandbox
    until: float


class SandboxResolver:
    """Finds sandboxes awake for what is passed on to them: pages ask for hundreds of things at once.

    What was found is trusted for half a second. Who asks while one is looked for waits for that, so that many requests
    wake a sandbox once.
    """

    def __init__(self, controller: SandboxController) -> None:
        self._controller = controller
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._under_way: dict[_Key, asyncio.Task[UsableSandbox]] = {}

    async def find(self, caller: Caller, sandbox_id: str, *, anew: bool) -> UsableSandbox:
        """Get a sandbox that runs; `anew` for what cannot be asked twice, should it not run after all."""
        key = caller.tenant_id, sandbox_id
        known = self._known.get(key)
        now = asyncio.get_running_loop().time()
        if known is not None and now < known.until and not anew:
            return known.used
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._find(caller, key, now))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key))
        return await asyncio.shield(task)

    async def _find(self, caller: Caller, key: _Key, now: float) -> UsableSandbox:
        used = await self._controller.use(caller, key[1])
        self._known[key] = _Known(used, until=now + _TRUSTED_SECONDS)
        self._known.move_to_end(key)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return used
