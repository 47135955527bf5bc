from collections import OrderedDict
from dataclasses import dataclass

from sandbox_server.db.models import Sandbox
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.provider import Access
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.services.sealed import open_access
from sandbox_server.vault import Vault

_MOST_OPEN = 10_000


@dataclass(frozen=True)
class UsableSandbox:
    """A running sandbox with all that it takes to work in it."""

    row: Sandbox
    backend: E2BBackend
    access: Access
    woken: bool = False
    """It was paused before, and what was connected to it is not yet again."""


class SandboxAccess:
    """What it takes to reach into sandboxes, without asking their providers."""

    def __init__(self, backends: Backends, vault: Vault) -> None:
        self._backends = backends
        self._vault = vault
        self._open: OrderedDict[str, tuple[bytes, Access]] = OrderedDict()

    def usable(self, row: Sandbox, *, woken: bool = False) -> UsableSandbox:
        """Give the way into a sandbox that runs."""
        access = self.find_access(row)
        assert access is not None
        assert row.backend is not None
        return UsableSandbox(row, self._backends[row.backend], access, woken)

    def find_access(self, row: Sandbox) -> Access | None:
        """Find how a sandbox is reached; one that has no place yet, or has ended, is not."""
        sealed = row.access_sealed
        if sealed is None:
            return None
        known = self._open.get(row.id)
        if known is None or known[0] != sealed:
            known = self._open[row.id] = (sealed, open_access(self._vault, row.id, sealed))
        self._open.move_to_end(row.id)
        if len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        return known[1]
