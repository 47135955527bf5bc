import hashlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sandbox_server.db.batches import Batches
from sandbox_server.db.models import Repository, WebhookDelivery
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import InvalidRequest, SignatureRefused
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import Delivery
from sandbox_server.forges.delivery_repository import DeliveryEntry, DeliveryRepository
from sandbox_server.forges.service import Forges
from sandbox_server.forges.webhook_keys import WebhookKey
from sandbox_server.jobs.kinds import WEBHOOK_DELIVERY
from sandbox_server.jobs.repository import JobRepository

_LARGEST_STORED = 2**20
_LONGEST_ID = 200


@dataclass(frozen=True)
class Receipt:
    id: str
    is_new: bool


class Deliveries:
    """Webhook deliveries: verified, stored once, and left to a job."""

    def __init__(self, sessions: Sessions, forges: Forges) -> None:
        self._sessions = sessions
        self._forges = forges
        self._finished = Batches(self._finish_all)

    async def receive(self, forge_id: str, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Verify and store a delivery with the job that processes it.

        The id that a forge gives is not signed. So a body that was seen before is known under any id, and a recorded
        delivery cannot be replayed under another one.
        """
        kept = self._forges.webhook_keys.find_kept(forge_id)
        if kept is not None and (receipt := await self._try(kept, headers, body)):
            return receipt
        key = await self._forges.webhook_keys.read(forge_id)
        delivery = _read(key, headers, body)
        return await self._store(forge_id, delivery, body, sealed=key.sealed)

    async def store(self, forge_id: str, delivery: Delivery, body: bytes) -> Receipt:
        """Store a delivery that the server has made itself; it is known by its body."""
        return await self._store(forge_id, delivery, body, sealed=None)

    async def list_page(
        self, caller: Caller, *, forge: str | None, limit: int, before: str | None
    ) -> Sequence[DeliveryEntry]:
        async with without_transaction(self._sessions) as session:
            return await DeliveryRepository(session).list_page(
                caller.tenant_id, forge=forge, limit=limit, before=before
            )

    async def retry(self, caller: Caller, delivery_id: str) -> DeliveryEntry:
        """Process a delivery again; what it caused before is found and not repeated."""
        async with self._sessions.begin() as session:
            deliveries = DeliveryRepository(session)
            row = await deliveries.lock(delivery_id, tenant_id=caller.tenant_id)
            row.done_at = row.outcome = None
            await JobRepository(session).due(WEBHOOK_DELIVERY, row.id)
            await session.flush()
            return await deliveries.get_entry(delivery_id, tenant_id=caller.tenant_id)

    async def find_open(self, delivery_id: str) -> tuple[WebhookDelivery, Repository | None] | None:
        """Find a delivery that is not processed yet, with its repository if that is one of ours; for workers."""
        async with without_transaction(self._sessions) as session:
            return await DeliveryRepository(session).find_open(delivery_id)

    async def note(self, delivery_id: str, outcome: str) -> None:
        """Record what a delivery waits for."""
        async with self._sessions.begin() as session:
            await DeliveryRepository(session).note(delivery_id, outcome)

    async def finish(self, delivery_id: str, outcome: str | None) -> None:
        """Record what came of a delivery, and remove its job."""
        if not await self._finished.write(delivery_id, outcome):
            await self._finish_all({delivery_id: outcome})

    async def _finish_all(self, outcomes: Mapping[str, str | None]) -> AbstractSet[str]:
        async with without_transaction(self._sessions) as session:
            await DeliveryRepository(session).finish(outcomes)
        return outcomes.keys()

    async def _try(
        self, key: WebhookKey, headers: Mapping[str, str], body: bytes
    ) -> Receipt | None:
        """Store a delivery with a secret that may be outdated; None if the current one has to decide."""
        try:
            delivery = _read(key, headers, body)
        except SignatureRefused:
            return None
        return await self._add(key.forge.id, delivery, body, sealed=key.sealed)

    async def _store(
        self, forge_id: str, delivery: Delivery, body: bytes, *, sealed: bytes | None
    ) -> Receipt:
        receipt = await self._add(forge_id, delivery, body, sealed=sealed)
        if receipt is not None:
            return receipt
        async with without_transaction(self._sessions) as session:
            known = await DeliveryRepository(session).find_same(
                forge_id, delivery.id, digest=_digest_of(body)
            )
        if known is None:
            raise SignatureRefused("The forge was changed while its delivery was verified.")
        return Receipt(known, is_new=False)

    async def _add(
        self, forge_id: str, delivery: Delivery, body: bytes, *, sealed: bytes | None
    ) -> Receipt | None:
        fresh, digest = new_id(), _digest_of(body)
        async with without_transaction(self._sessions) as session:
            is_new = await DeliveryRepository(session).add(
                fresh,
                forge_id,
                replace(delivery, id=delivery.id or digest.hex()),
                digest=digest,
                body=body if len(body) <= _LARGEST_STORED else None,
                secret_sealed=sealed,
            )
        return Receipt(fresh, is_new=True) if is_new else None


def _read(key: WebhookKey, headers: Mapping[str, str], body: bytes) -> Delivery:
    delivery = key.read(headers, body)
    if not 0 < len(delivery.id) <= _LONGEST_ID:
        raise InvalidRequest(f"A delivery has an id of at most {_LONGEST_ID} characters.")
    return delivery


def _digest_of(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
