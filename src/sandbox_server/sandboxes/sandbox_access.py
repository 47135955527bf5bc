from collections import OrderedDict
from dataclasses import dataclass

from sandbox_server.db.models import Sandbox
from sandbox_server.providers.protocol.provider import Access
from sandbox_server.providers.registry import Backend, Backends
from sandbox_server.sandboxes.services.encrypted_columns import open_access
from sandbox_server.vault import Vault

_MOST_OPEN = 10_000


@dataclass(frozen=True)
class UsableSandbox:
    """A running sandbox, with its backend and credentials."""

    row: Sandbox
    backend: Backend
    access: Access
    woken: bool = False
    """It has just been resumed, so earlier connections to it are broken."""


class SandboxAccess:
    """Opens the stored credentials of sandboxes, without a request to their providers."""

    def __init__(self, backends: Backends, vault: Vault) -> None:
        self._backends = backends
        self._vault = vault
        self._open: OrderedDict[str, tuple[bytes, Access]] = OrderedDict()

    def usable(self, row: Sandbox, *, woken: bool = False) -> UsableSandbox:
        """Return the access to a running sandbox."""
        access = self.find_access(row)
        assert access is not None
        assert row.backend is not None
        return UsableSandbox(row, self._backends[row.backend], access, woken)

    def find_access(self, row: Sandbox) -> Access | None:
        """Find the credentials of a sandbox; it has none before it started and after it ended."""
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
