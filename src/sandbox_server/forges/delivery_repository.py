from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Select, and_, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Forge, Job, WebhookDelivery
from sandbox_server.domain.errors import DeliveryNotFound
from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.domain.tasks.forges import Delivery
from sandbox_server.jobs.kinds import WEBHOOK_DELIVERY
from sandbox_server.jobs.statements import LOOK_AHEAD

_LONGEST = 500
_DUE_AFTER = LOOK_AHEAD + timedelta(milliseconds=500)
"""Schedulers poll for jobs as late as this, so the commit needs no notification, which would serialize the commits."""


@dataclass(frozen=True)
class DeliveryEntry:
    """A delivery with the name of its forge and the error of its last attempt."""

    row: WebhookDelivery
    forge: str
    last_error: str | None


class DeliveryRepository:
    """The SQL of webhook deliveries."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(
        self,
        delivery_id: str,
        forge_id: str,
        delivery: Delivery,
        *,
        digest: bytes,
        body: bytes | None,
    ) -> bool:
        """Store a delivery with its job; returns False if it, or one with the same body, was stored before.

        It is one statement, which commits by itself: four round trips less for each webhook.
        """
        added = insert(WebhookDelivery).values(
            id=delivery_id,
            forge_id=forge_id,
            delivery_id=delivery.id,
            digest=digest,
            kind=delivery.kind,
            action=_short(delivery.action),
            repository=_short(delivery.repository_id),
            repository_name=_short(delivery.repository_name),
            subject=_short(delivery.subject),
            actor=_short(delivery.actor),
            actor_is_bot=delivery.actor_is_bot,
            body=body,
        )
        made = (
            added.on_conflict_do_nothing()
            .returning(WebhookDelivery.id, WebhookDelivery.received_at)
            .cte("made")
        )
        due = select(literal(WEBHOOK_DELIVERY), made.c.id, made.c.received_at + _DUE_AFTER)
        job = insert(Job).from_select(["kind", "subject", "run_at"], due).returning(Job.id)
        return await self._session.scalar(job) is not None

    async def find_same(self, forge_id: str, delivery_id: str, *, digest: bytes) -> str | None:
        """Find the delivery that was stored before."""
        same = (WebhookDelivery.delivery_id == delivery_id) | (WebhookDelivery.digest == digest)
        return await self._session.scalar(
            select(WebhookDelivery.id).where(WebhookDelivery.forge_id == forge_id, same).limit(1)
        )

    async def find(self, delivery_id: str) -> WebhookDelivery | None:
        return await self._session.get(WebhookDelivery, delivery_id)

    async def lock(self, delivery_id: str, *, tenant_id: str) -> WebhookDelivery:
        """Hold the row until the transaction ends."""
        row = await self._session.scalar(
            select(WebhookDelivery)
            .join(Forge, Forge.id == WebhookDelivery.forge_id)
            .where(WebhookDelivery.id == delivery_id, Forge.tenant_id == tenant_id)
            .with_for_update(of=WebhookDelivery)
        )
        if row is None:
            raise DeliveryNotFound(delivery_id)
        return row

    async def get_entry(self, delivery_id: str, *, tenant_id: str) -> DeliveryEntry:
        found = _entries(tenant_id).where(WebhookDelivery.id == delivery_id)
        entry = (await self._session.execute(found)).one_or_none()
        if entry is None:
            raise DeliveryNotFound(delivery_id)
        return DeliveryEntry(*entry)

    async def list_page(
        self, tenant_id: str, *, forge: str | None, limit: int, before: str | None
    ) -> Sequence[DeliveryEntry]:
        """List deliveries, newest first."""
        query = _entries(tenant_id)
        if forge is not None:
            query = query.where(Forge.name == forge)
        if before is not None:
            query = query.where(WebhookDelivery.id < before)
        found = await self._session.execute(query.order_by(WebhookDelivery.id.desc()).limit(limit))
        return [DeliveryEntry(*row) for row in found]

    async def note(self, delivery_id: str, outcome: str) -> None:
        """Record what a delivery waits for."""
        await self._session.execute(
            update(WebhookDelivery)
            .where(WebhookDelivery.id == delivery_id)
            .values(outcome=_short(outcome))
        )

    async def finish(self, delivery_id: str, outcome: str) -> None:
        """Record what came of a delivery."""
        await self._session.execute(
            update(WebhookDelivery)
            .where(WebhookDelivery.id == delivery_id)
            .values(done_at=func.clock_timestamp(), outcome=_short(outcome))
        )


def _entries(tenant_id: str) -> Select[WebhookDelivery, str, str | None]:
    job = and_(Job.kind == WEBHOOK_DELIVERY, Job.subject == WebhookDelivery.id)
    return (
        select(WebhookDelivery, Forge.name, Job.last_error)
        .join(Forge, Forge.id == WebhookDelivery.forge_id)
        .outerjoin(Job, job)
        .where(Forge.tenant_id == tenant_id)
    )


def _short(text: str | None) -> str | None:
    return None if text is None else storable(text)[:_LONGEST]
