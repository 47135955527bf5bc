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
_LIVING = Command.kind == CommandKind.SERVICE, Command.ended_at.is_(None)


@dataclass(frozen=True)
class LastRecording:
    """What last recorded a service's log, and whether that has just ended."""

    command: Command
    has_just_ended: bool


class ServiceLogRepository:
    """The recordings of services' logs, of which each is wanted until its `expires_at`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_last(self, sandbox_id: str, *, just: timedelta) -> Mapping[str, LastRecording]:
        """List the last recording of each service of a sandbox, by its name."""
        rows = await self._session.execute(
            select(Command, func.coalesce(Command.ended_at > _now - just, False))
            .where(Command.sandbox_id == sandbox_id, Command.kind == CommandKind.SERVICE)
            .ext(distinct_on(Command.name))
            .order_by(Command.name, Command.id.desc())
        )
        return {row.name or "": LastRecording(row, just_ended) for row, just_ended in rows}

    async def want(self, sandbox_ids: Collection[str], *, at_least: timedelta) -> None:
        """Have the logs of these sandboxes recorded for so long from now, as far as they are."""
        await self._session.execute(
            update(Command)
            .where(Command.sandbox_id.in_(sandbox_ids), *_LIVING)
            .values(expires_at=_now + literal(at_least, Interval))
            .execution_options(synchronize_session=False)
        )

    async def list_unwanted(self, *, new: timedelta, limit: int) -> Sequence[Command]:
        """List recordings that nobody has wanted for a while; those that are new are wanted by whoever began them."""
        is_unwanted = or_(
            Command.expires_at < _now,
            Command.expires_at.is_(None) & (Command.created_at < _now - literal(new, Interval)),
        )
        return (
            await self._session.scalars(select(Command).where(*_LIVING, is_unwanted).limit(limit))
        ).all()
