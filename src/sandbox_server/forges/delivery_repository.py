from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import (
    ARRAY,
    Delete,
    LargeBinary,
    Select,
    Text,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Forge, Job, Repository, WebhookDelivery
from sandbox_server.domain.errors import DeliveryNotFound
from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.domain.tasks.delivery_outcomes import NO_REPOSITORY, NOT_OURS
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
        secret_sealed: bytes | None = None,
    ) -> bool:
        """Store a delivery; returns False if it, or one with the same body, was stored before.

        With `secret_sealed`, also if the forge is removed or has another webhook secret by now. It is one statement, which commits by
        itself: four round trips less for each webhook. A job is added only for a repository of ours.
        """
        values = {
            "id": delivery_id,
            "forge_id": forge_id,
            "delivery_id": delivery.id,
            "digest": digest,
            "kind": delivery.kind,
            "action": _short(delivery.action),
            "repository": _short(delivery.repository_id),
            "repository_name": _short(delivery.repository_name),
            "subject": _short(delivery.subject),
            "actor": _short(delivery.actor),
            "actor_is_bot": delivery.actor_is_bot,
            "body": body,
            "secret_sealed": secret_sealed,
        }
        return await self._session.scalar(_ADD, values) is not None

    async def find_same(self, forge_id: str, delivery_id: str, *, digest: bytes) -> str | None:
        """Find the delivery that was stored before."""
        same = (WebhookDelivery.delivery_id == delivery_id) | (WebhookDelivery.digest == digest)
        return await self._session.scalar(
            select(WebhookDelivery.id).where(WebhookDelivery.forge_id == forge_id, same).limit(1)
        )

    async def find_open(self, delivery_id: str) -> tuple[WebhookDelivery, Repository | None] | None:
        """Find a delivery that is not processed yet, with its repository if that is one of ours."""
        found = await self._session.execute(_FIND_OPEN, {"id": delivery_id})
        row = found.one_or_none()
        return None if row is None else (row[0], row[1])

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

    async def finish(self, outcomes: Mapping[str, str | None]) -> None:
        """Record what came of deliveries, and remove their jobs; None leaves what was recorded before."""
        ordered = sorted(outcomes)  # so that statements lock rows in the same order
        found = {"ids": ordered, "outcomes": [_short(outcomes[each]) for each in ordered]}
        await self._session.execute(_FINISH, found)


def _add() -> Select[str]:
    columns = WebhookDelivery.__table__.columns
    given = {
        name: bindparam(name, type_=columns[name].type)
        for name in (
            *("id", "forge_id", "delivery_id", "digest", "kind", "action", "repository"),
            *("repository_name", "subject", "actor", "actor_is_bot", "body"),
        )
    }
    sealed = bindparam("secret_sealed", type_=LargeBinary)
    is_ours = exists().where(
        Repository.forge_id == given["forge_id"],
        Repository.external_id == given["repository"],
        Repository.removed_at.is_(None),
    )
    outcome = case((given["repository"].is_(None), NO_REPOSITORY), else_=NOT_OURS)
    row = {
        **given,
        "done_at": case((~is_ours, func.clock_timestamp())),
        "outcome": case((~is_ours, outcome)),
    }
    signed = select(*row.values()).where(
        Forge.id == given["forge_id"],
        or_(
            sealed.is_(None),
            and_(Forge.removed_at.is_(None), Forge.webhook_secret_sealed == sealed),
        ),
    )
    made = (
        insert(WebhookDelivery)
        .from_select(list(row), signed)
        .on_conflict_do_nothing()
        .returning(WebhookDelivery.id, WebhookDelivery.received_at, WebhookDelivery.done_at)
        .cte("made")
    )
    due = select(literal(WEBHOOK_DELIVERY), made.c.id, made.c.received_at + _DUE_AFTER)
    job = (
        insert(Job)
        .from_select(["kind", "subject", "run_at"], due.where(made.c.done_at.is_(None)))
        .returning(Job.id)
        .cte("job")
    )
    return select(made.c.id).add_cte(job)


def _finish() -> Delete:
    finished = select(
        func.unnest(bindparam("ids", type_=ARRAY(Text))).label("id"),
        func.unnest(bindparam("outcomes", type_=ARRAY(Text))).label("outcome"),
    ).cte("finished")
    recorded = (
        update(WebhookDelivery)
        .where(WebhookDelivery.id == finished.c.id, finished.c.outcome.is_not(None))
        .values(done_at=func.clock_timestamp(), outcome=finished.c.outcome)
        .cte("recorded")
    )
    ended = select(finished.c.id)
    return delete(Job).where(Job.kind == WEBHOOK_DELIVERY, Job.subject.in_(ended)).add_cte(recorded)


# Built once: building them takes longer than executing them.
_ADD = _add()
_FINISH = _finish()
_FIND_OPEN = (
    select(WebhookDelivery, Repository)
    .outerjoin(
        Repository,
        and_(
            Repository.forge_id == WebhookDelivery.forge_id,
            Repository.external_id == WebhookDelivery.repository,
            Repository.removed_at.is_(None),
        ),
    )
    .where(WebhookDelivery.id == bindparam("id"), WebhookDelivery.done_at.is_(None))
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
