from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Row, Select, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from sandbox_server.db.models import Command, CommandOutput
from sandbox_server.domain.commands import COMMAND_LIVING
from sandbox_server.log.records import Record, RecordType

LARGEST_PART = 2**20
"""Maximum bytes of one read. One more record may be included, so that there is always one."""

_OUTPUT = (RecordType.STDOUT, RecordType.STDERR)
_kept = func.octet_length(CommandOutput.content)
end_of_record = CommandOutput.offset + case(
    (CommandOutput.type == RecordType.GAP, CommandOutput.data["size"].astext.cast(BigInteger)),
    else_=_kept,
)
_ascending = CommandOutput.seq.asc()
_columns = (
    CommandOutput.seq,
    CommandOutput.command_id,
    CommandOutput.sandbox_id,
    CommandOutput.type,
    CommandOutput.offset.label("start"),
    CommandOutput.content,
    CommandOutput.data,
    CommandOutput.created_at.label("at"),
)


@dataclass(frozen=True)
class Part:
    """Records in order, and whether there may be more."""

    records: Sequence[Record]
    more: bool


class CommandOutputRepository:
    """Reads the output of commands. `RecordingRepository` writes it."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_after(self, command_id: str, *, after: int, limit: int) -> Part:
        """List records of a command's log after a number."""
        beyond = _select_records(CommandOutput.command_id == command_id, CommandOutput.seq > after)
        return await self._read(beyond, limit=limit)

    async def list_stream(
        self, command_id: str, stream: RecordType, *, offset: int, limit: int
    ) -> Part:
        """List retained records and gaps of one stream from byte `offset`."""
        found = _select_records(
            CommandOutput.command_id == command_id,
            _concerns(stream),
            or_(CommandOutput.offset >= offset, end_of_record > offset),
        )
        return await self._read(found, limit=limit)

    async def find_seq_at(self, command_id: str, stream: RecordType, *, offset: int) -> int:
        """Find the number after which the stream continues from byte `offset`."""
        before = select(CommandOutput.seq).where(
            CommandOutput.command_id == command_id, _concerns(stream), end_of_record <= offset
        )
        # Descending, because most readers are near the end.
        last = before.order_by(CommandOutput.seq.desc()).limit(1)
        return await self._session.scalar(last) or 0

    async def list_stream_after(
        self, command_id: str, stream: RecordType, *, after: int, limit: int
    ) -> Part:
        """List retained records and gaps of one stream after a number."""
        beyond = _select_records(
            CommandOutput.command_id == command_id, _concerns(stream), CommandOutput.seq > after
        )
        return await self._read(beyond, limit=limit)

    async def list_last(
        self, command_id: str, stream: RecordType, *, max_bytes: int
    ) -> Sequence[Record]:
        """List the last records of one stream: about `max_bytes` bytes, and none from before a gap."""
        found = (
            select(*_columns, _sum(CommandOutput.seq.desc()).label("behind"))
            .where(CommandOutput.command_id == command_id, _concerns(stream))
            .subquery()
        )
        rows = await self._session.execute(
            select(found).where(found.c.behind < max_bytes).order_by(found.c.seq.desc())
        )
        last = takewhile(lambda record: record.type is stream, map(_record, rows))
        return [*last][::-1]

    async def list_ends(self, command_id: str, *, max_bytes: int) -> Sequence[Record]:
        """List the retained output; of a stream of more than `max_bytes` bytes, only the beginning and the end."""
        before = _sum(_ascending, partition_by=CommandOutput.type)
        behind = _sum(CommandOutput.seq.desc(), partition_by=CommandOutput.type)
        ranked = (
            select(*_columns, before.label("before"), behind.label("behind"))
            .where(
                CommandOutput.command_id == command_id,
                CommandOutput.type.in_([*_OUTPUT, RecordType.GAP]),
            )
            .subquery()
        )
        at_an_end = or_(ranked.c.before < max_bytes // 2, ranked.c.behind < max_bytes // 2)
        rows = await self._session.execute(select(ranked).where(at_an_end).order_by(ranked.c.seq))
        return [_record(row) for row in rows]

    async def list_types(self, command_id: str, types: Collection[RecordType]) -> Sequence[Record]:
        """List all records of some types, which must be few."""
        own = (CommandOutput.command_id == command_id, CommandOutput.type.in_(types))
        found: Select[*tuple[Any, ...]] = select(*_columns).where(*own).order_by(_ascending)
        return [_record(row) for row in await self._session.execute(found)]

    async def find_result(self, command_id: str, number: int) -> Record | None:
        """Find a result of an execution of code."""
        result: Select[*tuple[Any, ...]] = select(*_columns).where(
            CommandOutput.command_id == command_id,
            CommandOutput.type == RecordType.RESULT,
            CommandOutput.data["number"].astext.cast(BigInteger) == number,
        )
        found = (await self._session.execute(result)).one_or_none()
        return None if found is None else _record(found)

    async def find_tail(self, command_id: str, *, count: int) -> int:
        """Find the number after which the last `count` records come."""
        own = select(CommandOutput.seq).where(CommandOutput.command_id == command_id)
        beyond = own.order_by(CommandOutput.seq.desc()).offset(count).limit(1)
        return await self._session.scalar(beyond) or 0

    async def has_ended(self, command_id: str) -> bool:
        """Return whether a command's log is complete, which it is for a removed command."""
        own = select(Command.state).where(Command.id == command_id)
        return await self._session.scalar(own) not in COMMAND_LIVING

    async def _read(self, query: Select[*tuple[Any, ...]], *, limit: int) -> Part:
        numbered = query.order_by(_ascending).limit(limit).subquery()
        fitting = select(numbered).where(numbered.c.before < LARGEST_PART)
        rows = await self._session.execute(fitting.order_by(numbered.c.seq))
        records = [_record(row) for row in rows]
        size = sum(len(record.content) for record in records)
        return Part(records, more=len(records) == limit or size >= LARGEST_PART)


def _select_records(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """Select records with the number of bytes before each, which does not read the bytes."""
    return select(*_columns, _sum(_ascending).label("before")).where(*conditions)


def _sum(
    order: ColumnElement[Any], *, partition_by: InstrumentedAttribute[str] | None = None
) -> ColumnElement[int]:
    """Count the bytes before each record in this order."""
    return func.sum(_kept).over(order_by=order, partition_by=partition_by) - _kept


def _concerns(stream: RecordType) -> ColumnElement[bool]:
    of_gap = CommandOutput.data["stream"].astext
    gap = (CommandOutput.type == RecordType.GAP) & or_(of_gap.is_(None), of_gap == stream)
    return or_(CommandOutput.type == stream, gap)


def _record(row: Row[Any]) -> Record:
    return Record(
        seq=row.seq,
        command_id=row.command_id,
        sandbox_id=row.sandbox_id,
        type=RecordType(row.type),
        offset=row.start,
        content=row.content,
        data=row.data,
        at=row.at,
    )
