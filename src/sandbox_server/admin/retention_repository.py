from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Delete, and_, delete, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.dml import ReturningDelete

from sandbox_server.db.models import (
    BrowserFilePart,
    BrowserSession,
    Command,
    DesktopRecording,
    Event,
    GitPush,
    IdempotencyKey,
    Job,
    Login,
    Sandbox,
    Stream,
    Task,
    TaskLargeFilePart,
    TaskSave,
    Ticket,
    WebhookDelivery,
)
from sandbox_server.domain.tasks.pushes import PushState
from sandbox_server.jobs.kinds import WEBHOOK_DELIVERY

_now = func.statement_timestamp()


class RetentionRepository:
    """Expired rows of all tables; each call removes up to `limit` and returns their number."""

    def __init__(self, session: AsyncSession, *, limit: int) -> None:
        self._session = session
        self._limit = limit

    async def remove_ended(self, age: timedelta, *, job_kinds: Sequence[str]) -> int:
        """Remove sandboxes that ended longer than `age` ago, with their jobs."""
        removed = await self._remove(Sandbox.id, where=Sandbox.ended_at < _now - age)
        await self._session.execute(
            delete(Job).where(Job.kind.in_(job_kinds), Job.subject.in_(removed))
        )
        return len(removed)

    async def remove_browser_sessions(self, age: timedelta) -> int:
        """Remove browser sessions that ended longer than `age` ago, with their files."""
        removed = await self._remove(BrowserSession.id, where=BrowserSession.ended_at < _now - age)
        await self._session.execute(
            delete(BrowserFilePart).where(BrowserFilePart.owner_id.in_(removed))
        )
        return len(removed)

    async def remove_recordings(self, age: timedelta) -> int:
        """Remove recordings of desktops that ended longer than `age` ago."""
        key = (DesktopRecording.sandbox_id, DesktopRecording.id)
        return len(await self._remove(*key, where=DesktopRecording.ended_at < _now - age))

    async def remove_commands(self, age: timedelta) -> int:
        """Remove commands that ended longer than `age` ago, with their output."""
        removal = self._removal(Command.id, where=Command.ended_at < _now - age)
        removed = removal.returning(
            Command.tenant_id, Command.last_seq.label("seq"), Command.ended_at.label("at")
        )
        return await self._record_gap(removed, Stream.output_removed_seq, Stream.output_removed_at)

    async def remove_saves(self, age: timedelta) -> int:
        """Remove the saves of tasks that ended longer than `age` ago, with their parts and large files."""
        ended = select(Task.id).where(Task.ended_at < _now - age)
        await self._remove(TaskLargeFilePart.id, where=TaskLargeFilePart.task_id.in_(ended))
        key = (TaskSave.task_id, TaskSave.number)
        return len(await self._remove(*key, where=TaskSave.task_id.in_(ended)))

    async def remove_events(self, age: timedelta) -> int:
        """Remove events older than `age`."""
        key = (Event.tenant_id, Event.seq)
        removal = self._removal(*key, where=Event.created_at < _now - age)
        removed = removal.returning(Event.tenant_id, Event.seq, Event.created_at.label("at"))
        return await self._record_gap(removed, Stream.removed_seq, Stream.removed_at)

    async def remove_idempotency_keys(self, age: timedelta) -> int:
        """Remove idempotency keys older than `age`."""
        key = (IdempotencyKey.tenant_id, IdempotencyKey.key)
        return len(await self._remove(*key, where=IdempotencyKey.created_at < _now - age))

    async def remove_pushes(self, age: timedelta) -> int:
        """Remove pushes older than `age`, with what is stored of them, except those still to be forwarded."""
        old = and_(GitPush.created_at < _now - age, GitPush.state != PushState.KEPT)
        return len(await self._remove(GitPush.id, where=old))

    async def remove_tickets(self) -> int:
        """Remove expired tickets."""
        return len(await self._remove(Ticket.hash, where=Ticket.expires_at < _now))

    async def remove_deliveries(self, age: timedelta) -> int:
        """Remove webhook deliveries older than `age`, with their jobs."""
        removed = await self._remove(
            WebhookDelivery.id, where=WebhookDelivery.received_at < _now - age
        )
        await self._session.execute(
            delete(Job).where(Job.kind == WEBHOOK_DELIVERY, Job.subject.in_(removed))
        )
        return len(removed)

    async def remove_logins(self) -> int:
        """Remove expired logins."""
        return len(await self._remove(Login.id, where=Login.expires_at < _now))

    async def _record_gap(
        self,
        removed: ReturningDelete[*tuple[Any, ...]],
        until_seq: InstrumentedAttribute[int],
        until: InstrumentedAttribute[datetime | None],
    ) -> int:
        """Record in each log up to which number rows were removed, so that readers get a gap record."""
        rows = removed.cte("removed")
        last = select(
            rows.c.tenant_id, func.max(rows.c.seq).label("seq"), func.max(rows.c.at).label("at")
        )
        each = last.group_by(rows.c.tenant_id).cte("each")
        recording = update(Stream).where(Stream.tenant_id == each.c.tenant_id)
        values = {
            until_seq: func.greatest(until_seq, each.c.seq),
            until: func.greatest(until, each.c.at),
        }
        recorded = recording.values(values).cte("recorded")
        count = select(func.count()).select_from(rows).add_cte(recorded)
        return await self._session.scalar(count) or 0

    async def _remove(self, *key: InstrumentedAttribute[Any], where: ColumnElement[bool]) -> Any:
        removed = await self._session.scalars(self._removal(*key, where=where).returning(key[0]))
        return removed.all()

    def _removal(self, *key: InstrumentedAttribute[Any], where: ColumnElement[bool]) -> Delete:
        some = select(*key).where(where).limit(self._limit).with_for_update(skip_locked=True)
        return delete(key[0].class_).where(tuple_(*key).in_(some))
