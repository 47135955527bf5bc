import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sandbox_server.db.models import WebhookDelivery
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import Delivery
from sandbox_server.forges.delivery_repository import DeliveryEntry, DeliveryRepository
from sandbox_server.forges.service import Forges
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

    async def receive(self, forge_id: str, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Verify and store a delivery with the job that processes it.

        The id that a forge gives is not signed. So a body that was seen before is known under any id, and a recorded
        delivery cannot be replayed under another one.
        """
        delivery = await self._forges.read_delivery(forge_id, headers, body)
        if not 0 < len(delivery.id) <= _LONGEST_ID:
            raise InvalidRequest(f"A delivery has an id of at most {_LONGEST_ID} characters.")
        return await self.store(forge_id, delivery, body)

    async def store(self, forge_id: str, delivery: Delivery, body: bytes) -> Receipt:
        """Store a delivery with its job; one without an id is known by its body."""
        fresh, digest = new_id(), hashlib.sha256(body).digest()
        delivery = replace(delivery, id=delivery.id or digest.hex())
        async with without_transaction(self._sessions) as session:
            deliveries = DeliveryRepository(session)
            stored = body if len(body) <= _LARGEST_STORED else None
            if await deliveries.add(fresh, forge_id, delivery, digest=digest, body=stored):
                return Receipt(fresh, is_new=True)
            known = await deliveries.find_same(forge_id, delivery.id, digest=digest)
        return Receipt(known or fresh, is_new=False)

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

    async def find_open(self, delivery_id: str) -> WebhookDelivery | None:
        """Find a delivery that is not processed yet; for workers."""
        async with without_transaction(self._sessions) as session:
            row = await DeliveryRepository(session).find(delivery_id)
        return row if row is not None and row.done_at is None else None

    async def note(self, delivery_id: str, outcome: str) -> None:
        """Record what a delivery waits for."""
        async with self._sessions.begin() as session:
            await DeliveryRepository(session).note(delivery_id, outcome)

    async def finish(self, delivery_id: str, outcome: str | None) -> None:
        """Record what came of a delivery, and remove its job."""
        async with self._sessions.begin() as session:
            if outcome is not None:
                await DeliveryRepository(session).finish(delivery_id, outcome)
            await JobRepository(session).remove(WEBHOOK_DELIVERY, delivery_id)
