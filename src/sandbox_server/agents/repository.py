from datetime import datetime

from sqlalchemy import func, literal, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Command
from sandbox_server.domain.agents import FollowUp
from sandbox_server.domain.commands import CommandKind


class AgentRunRepository:
    """Queries for the follow-up of agent runs."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find(self, run_id: str) -> tuple[Command | None, datetime]:
        """Find a run of any tenant, and the database's time."""
        run = await self._session.get(Command, run_id)
        now: datetime = (await self._session.execute(select(func.clock_timestamp()))).scalar_one()
        return run, now

    async def is_only_one(self, run: Command) -> bool:
        """Return whether no other command of a user runs in the sandbox."""
        others = select(Command.id).where(
            Command.sandbox_id == run.sandbox_id,
            Command.id != run.id,
            Command.ended_at.is_(None),
            Command.kind != CommandKind.SERVICE,
        )
        return await self._session.scalar(others.limit(1)) is None

    async def record_follow_up(self, run: Command, follow_up: FollowUp) -> bool:
        """Record what was done after the run; returns False if it was already decided."""
        updated = await self._session.scalar(
            update(Command)
            .where(
                Command.id == run.id,
                Command.agent["afterwards"].astext == FollowUp.TO_BE_PAUSED,
            )
            .values(agent=Command.agent.op("||")(literal({"afterwards": follow_up}, JSONB)))
            .returning(Command.id)
            .execution_options(synchronize_session=False)
        )
        return updated is not None
