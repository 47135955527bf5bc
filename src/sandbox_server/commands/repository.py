from collections.abc import Collection, Sequence

from sqlalchemy import Text, bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Command
from sandbox_server.domain.commands import CommandKind, CommandState

# Built once: it runs at every poll of a waiting caller.
_FIND = select(Command).where(
    Command.id == bindparam("command_id", type_=Text),
    Command.sandbox_id == bindparam("sandbox_id", type_=Text),
    Command.tenant_id == bindparam("tenant_id", type_=Text),
)


class CommandRepository:
    """Reads commands. `RecordingRepository` writes them."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find(self, command_id: str, *, sandbox_id: str, tenant_id: str) -> Command | None:
        parameters = {"command_id": command_id, "sandbox_id": sandbox_id, "tenant_id": tenant_id}
        found: Command | None = await self._session.scalar(_FIND, parameters)
        return found

    async def list_page(
        self,
        sandbox_id: str,
        *,
        kinds: Collection[CommandKind],
        states: Collection[CommandState] = (),
        limit: int,
        before: str | None = None,
    ) -> Sequence[Command]:
        """List commands, newest first, from the one before the id `before`; ids sort by age."""
        query = select(Command).where(Command.sandbox_id == sandbox_id, Command.kind.in_(kinds))
        if states:
            query = query.where(Command.state.in_(states))
        if before is not None:
            query = query.where(Command.id < before)
        return (await self._session.scalars(query.order_by(Command.id.desc()).limit(limit))).all()
