from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_server.db.models import Forge
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import ForgeNotFound, SignatureRefused
from sandbox_server.domain.tasks.forges import Delivery
from sandbox_server.forges.adapters import read_delivery
from sandbox_server.forges.repository import ForgeRepository
from sandbox_server.forges.sealed import open_webhook_secret
from sandbox_server.vault import Vault

_MOST_KEPT = 1000


@dataclass(frozen=True)
class WebhookKey:
    """The secret that signs the deliveries of a forge."""

    forge: Forge
    sealed: bytes
    """The secret as it is stored, to compare with the forge's current one."""
    secret: bytes = field(repr=False)

    def read(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Verify and read a delivery; raises `SignatureRefused`."""
        return read_delivery(self.forge, headers, body, self.secret)


class WebhookKeys:
    """The webhook secrets of forges, kept in memory after their first use.

    A secret in memory can be outdated, since any server may change a forge. Statements that depend on one compare `sealed`.
    """

    def __init__(self, sessions: Sessions, vault: Vault) -> None:
        self._sessions = sessions
        self._vault = vault
        self._kept: dict[str, WebhookKey] = {}

    def find_kept(self, forge_id: str) -> WebhookKey | None:
        return self._kept.get(forge_id)

    async def read(self, forge_id: str) -> WebhookKey:
        """Read the current secret; raises `SignatureRefused` for a forge without one."""
        self._kept.pop(forge_id, None)
        async with without_transaction(self._sessions) as session:
            row = await ForgeRepository(session).find(forge_id)
        if row is None:
            raise ForgeNotFound(forge_id)
        sealed = row.webhook_secret_sealed
        if sealed is None:
            raise SignatureRefused(f"The forge {row.name!r} has no webhook secret.")
        key = WebhookKey(row, sealed, open_webhook_secret(self._vault, row.id, sealed))
        while len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[forge_id] = key
        return key
