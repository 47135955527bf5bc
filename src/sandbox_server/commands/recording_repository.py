"""All that is written about commands. Who records one holds its lease; nobody else's words count."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Interval,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.commands.recording_statements import ADD, EXTEND, FRESH, GIVEN, NOW, STORE
from sandbox_server.db.models import Command, CommandOutput
from sandbox_server.log.records import RecordType

# The channel on which it is said that commands were left for others to record.
LEFT = "commands_left"


@dataclass(frozen=True)
class NewRecord:
    type: str
    offset: int
    content: bytes
    data: Mapping[str, Any]


@dataclass(frozen=True)
class NewGap:
    """What becomes of a row that is not kept."""

    seq: int
    offset: int
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Growth:
    """By what a command's log grows, if its last number is still the one that is known."""

    command_id: str
    last_seq: int
    records: Sequence[NewRecord]
    gone: Sequence[int] = ()
    gaps: Sequence[NewGap] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Grown:
    last_seq: int
    started_at: datetime | None
    expires_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True)
class StoredRow:
    """What tells of a stored record how much there is of it."""

    seq: int
    type: str
    offset: int
    length: int
    data: Mapping[str, Any]


class RecordingRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, *, by: str, lease: timedelta, **columns: Any) -> Command:
        """Insert a command, whose lease its recorder has from now."""
        row = Command(**{**FRESH, **columns}, recorded_by=by)
        given = {f"new_{name}": getattr(row, name) for name in GIVEN}
        inserted = await self._session.execute(ADD, {**given, "lease": lease})
        row.created_at, row.recorded_until = inserted.one()
        return row

    async def store(
        self, tenant_id: str, growths: Sequence[Growth], *, by: str, lease: timedelta
    ) -> dict[str, Grown]:
        """Store what commands of one tenant wrote, in one statement; gives those of which it was `by` who records them."""
        given = _parameters(growths) | {"tenant_id": tenant_id, "by": by, "lease": lease}
        rows = await self._session.execute(STORE, given)
        return {row[0]: Grown(*row[1:5]) for row in rows}

    async def find_grown(self, command_id: str, *, by: str, after: int) -> Grown | None:
        """Find how far a command's log has come beyond that number, if it was `by` who brought it there."""
        row = Command
        columns = (row.last_seq, row.started_at, row.expires_at, row.ended_at)
        found = await self._session.execute(
            select(*columns).where(
                row.id == command_id, row.recorded_by == by, row.last_seq > after
            )
        )
        grown = found.one_or_none()
        return None if grown is None else Grown(*grown)

    async def extend(self, ids: Iterable[str], *, by: str, lease: timedelta) -> set[str]:
        """Let leases last from now; gives whose they still are."""
        given = {"ids": list(ids), "by": by, "lease": lease}
        return set(await self._session.scalars(EXTEND, given))

    async def is_ours(self, command_id: str, *, by: str) -> bool:
        """Tell whether a command was recorded by this one to the last."""
        mine = select(Command.recorded_by).where(Command.id == command_id)
        return await self._session.scalar(mine) == by

    async def claim_lapsed(
        self, *, by: str, lease: timedelta, limit: int
    ) -> Sequence[tuple[Command, datetime]]:
        """Take over commands that nobody records any more, each with the database's clock."""
        lapsed = (
            select(Command.id)
            .where(Command.ended_at.is_(None), Command.recorded_until <= NOW)
            .order_by(Command.recorded_until)
            .limit(limit)
            .with_for_update(skip_locked=True)
            .cte("lapsed")
        )
        claimed = await self._session.execute(
            update(Command)
            .where(Command.id == lapsed.c.id)
            .values(recorded_by=by, recorded_until=NOW + literal(lease, Interval))
            .returning(Command, NOW)
            .execution_options(synchronize_session=False)
        )
        return [(row[0], row[1]) for row in claimed]

    async def release(self, ids: Iterable[str], *, by: str) -> None:
        """Leave commands to whoever goes on with them, and say so."""
        released = (
            update(Command)
            .where(Command.id.in_(list(ids)), Command.recorded_by == by, Command.ended_at.is_(None))
            .values(recorded_until=NOW)
            .returning(func.pg_notify(LEFT, ""))
            .execution_options(synchronize_session=False)
        )
        await self._session.execute(released)

    async def list_stored(self, command_id: str) -> Sequence[StoredRow]:
        """List what its recorder stored of a command's log, without what it says."""
        row = CommandOutput
        columns = (row.seq, row.type, row.offset, func.octet_length(row.content), row.data)
        found = await self._session.execute(
            select(*columns)
            .where(row.command_id == command_id, row.type != RecordType.RESIZED)
            .order_by(row.seq)
        )
        return [StoredRow(*each) for each in found]


def _parameters(growths: Sequence[Growth]) -> dict[str, Any]:
    records = [
        (each.command_id, number, record)
        for each in growths
        for number, record in enumerate(each.records)
    ]
    gone = [(each.command_id, seq) for each in growths for seq in each.gone]
    gaps = [(each.command_id, gap) for each in growths for gap in each.gaps]
    commands = [
        {
            "id": each.command_id,
            "last_seq": each.last_seq,
            "count": len(each.records),
            **each.changes,
        }
        for each in growths
    ]
    return {
        "commands": json.dumps(commands),
        "ids": [command_id for command_id, _, _ in records],
        "numbers": [number for _, number, _ in records],
        "types": [record.type for _, _, record in records],
        "starts": [record.offset for _, _, record in records],
        "contents": [record.content for _, _, record in records],
        "datas": [json.dumps(dict(record.data)) for _, _, record in records],
        "gone_ids": [command_id for command_id, _ in gone],
        "gone_seqs": [seq for _, seq in gone],
        "cut_ids": [command_id for command_id, _ in gaps],
        "cut_seqs": [gap.seq for _, gap in gaps],
        "cut_starts": [gap.offset for _, gap in gaps],
        "cut_datas": [json.dumps(dict(gap.data)) for _, gap in gaps],
    }
