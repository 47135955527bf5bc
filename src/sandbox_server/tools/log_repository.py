from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.types import Interval

from sandbox_server.db.models import Command
from sandbox_server.domain.commands import CommandKind

_now = func.statement_timestamp()
_RUNNING = Command.kind == CommandKind.SERVICE, Command.ended_at.is_(None)


@dataclass(frozen=True)
class LastRecording:
    """The latest recording of a service's log, and whether it has ended recently."""

    command: Command
    ended_recently: bool


class ServiceLogRepository:
    """Recordings of services' logs; each is needed until its `expires_at`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_last(
        self, sandbox_id: str, *, recently: timedelta
    ) -> Mapping[str, LastRecording]:
        """List the latest recording of each service of a sandbox, by service name."""
        rows = await self._session.execute(
            select(Command, func.coalesce(Command.ended_at > _now - recently, False))
            .where(Command.sandbox_id == sandbox_id, Command.kind == CommandKind.SERVICE)
            .ext(distinct_on(Command.name))
            .order_by(Command.name, Command.id.desc())
        )
        return {row.name or "": LastRecording(row, recent) for row, recent in rows}

    async def extend(self, sandbox_ids: Collection[str], *, duration: timedelta) -> None:
        """Extend the running recordings of these sandboxes for this long from now."""
        await self._session.execute(
            update(Command)
            .where(Command.sandbox_id.in_(sandbox_ids), *_RUNNING)
            .values(expires_at=_now + literal(duration, Interval))
            .execution_options(synchronize_session=False)
        )

    async def list_expired(self, *, grace: timedelta, limit: int) -> Sequence[Command]:
        """List running recordings without followers; new ones have a grace period."""
        is_expired = or_(
            Command.expires_at < _now,
            Command.expires_at.is_(None) & (Command.created_at < _now - literal(grace, Interval)),
        )
        return (
            await self._session.scalars(select(Command).where(*_RUNNING, is_expired).limit(limit))
        ).all()
