from sqlalchemy import func, or_, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import CommandOutput
from sandbox_server.domain.commands import TerminalSize
from sandbox_server.log.events import LOG_CHANNEL
from sandbox_server.log.output_repository import end_of_record
from sandbox_server.log.records import RecordType

# The number is taken after the command is locked, as in `STORE`. Only the last size is kept, at its own position.
_RESIZE = text(f"""
WITH resized AS (
    UPDATE commands SET cols = :cols, rows = :rows
    WHERE id = :terminal_id AND ended_at IS NULL AND (cols, rows) IS DISTINCT FROM (:cols, :rows)
    RETURNING id, tenant_id, sandbox_id
), taken AS (
    INSERT INTO streams (tenant_id, next_seq) SELECT tenant_id, 2 FROM resized
    ON CONFLICT (tenant_id) DO UPDATE SET next_seq = streams.next_seq + 1
    RETURNING next_seq - 1 AS seq
)
INSERT INTO command_output (sandbox_id, seq, command_id, type, data)
SELECT sandbox_id, seq, id, 'resized', jsonb_build_object('cols', :cols, 'rows', :rows) FROM resized, taken
ON CONFLICT (command_id) WHERE type = 'resized'
    DO UPDATE SET seq = excluded.seq, data = excluded.data, created_at = excluded.created_at
RETURNING pg_notify('{LOG_CHANNEL}', 'sandbox/' || sandbox_id || ' command/' || command_id)
""")  # noqa: S608 - the channel name is a constant


class TerminalRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_position(self, terminal_id: str, *, offset: int) -> int:
        """Find the sequence number after which the output from byte `offset` is logged."""
        row = CommandOutput
        numbers = select(row.seq).where(row.command_id == terminal_id)
        beyond = numbers.where(
            row.type.in_([RecordType.STDOUT, RecordType.GAP]),
            or_(row.offset >= offset, end_of_record > offset),
        )
        shown = numbers.where(row.type == RecordType.STDOUT)
        first = beyond.order_by(row.seq).limit(1).scalar_subquery()
        last = shown.order_by(row.seq.desc()).limit(1).scalar_subquery()
        position: int = (
            await self._session.execute(select(func.coalesce(first - 1, last, 0)))
        ).scalar_one()
        return position

    async def note_size(self, terminal_id: str, size: TerminalSize) -> None:
        """Store the new size and notify viewers, unless it is unchanged."""
        parameters = {"terminal_id": terminal_id, "cols": size.cols, "rows": size.rows}
        await self._session.execute(_RESIZE, parameters)
