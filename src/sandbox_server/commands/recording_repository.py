"""Writes of commands and their output. Only the holder of a command's lease may write."""

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

from sandbox_server.commands.recording_statements import (
    CLAIM_AND_INSERT_IF_RUNNING,
    DEFAULTS,
    EXTEND,
    INSERT,
    INSERT_IF_RUNNING,
    INSERTED_COLUMNS,
    NOW,
    STORE,
)
from sandbox_server.db.models import Command, CommandOutput, Sandbox
from sandbox_server.domain.requests import Idempotency
from sandbox_server.log.records import RecordType

# Notification: commands were released for other servers to record.
RELEASED_CHANNEL = "commands_left"
# Notification with an id: the server that records this command interrupts it.
INTERRUPTED_CHANNEL = "commands_interrupted"


@dataclass(frozen=True)
class NewRecord:
    type: str
    offset: int
    content: bytes
    data: Mapping[str, Any]


@dataclass(frozen=True)
class NewGap:
    """Replaces a row that is not kept."""

    seq: int
    offset: int
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LogWrite:
    """Records to append to a command's log, if `last_seq` is still its last number."""

    command_id: str
    last_seq: int
    records: Sequence[NewRecord]
    deleted: Sequence[int] = ()
    gaps: Sequence[NewGap] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteResult:
    last_seq: int
    started_at: datetime | None
    expires_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True)
class StoredRow:
    """A stored record without its content."""

    seq: int
    type: str
    offset: int
    length: int
    data: Mapping[str, Any]


class RecordingRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, *, by: str, lease: timedelta, **columns: Any) -> Command:
        """Insert a command and lease it to its recorder."""
        row = Command(**{**DEFAULTS, **columns}, recorded_by=by)
        parameters = {f"new_{name}": getattr(row, name) for name in INSERTED_COLUMNS}
        inserted = await self._session.execute(INSERT, {**parameters, "lease": lease})
        row.created_at, row.recorded_until = inserted.one()
        return row

    async def add_if_running(
        self,
        *,
        by: str,
        lease: timedelta,
        idempotency: Idempotency | None,
        backends: Sequence[str],
        **columns: Any,
    ) -> tuple[Sandbox, Command] | None:
        """Insert a command, leased to its recorder, if its sandbox runs at one of these backends and its idempotency key is new.

        Returns both rows, or None without having written anything.
        """
        row = Command(**{**DEFAULTS, **columns}, recorded_by=by)
        parameters = {f"new_{name}": getattr(row, name) for name in INSERTED_COLUMNS}
        parameters |= {"lease": lease, "backends": list(backends)}
        if idempotency is not None:
            parameters |= {"key": idempotency.key, "digest": idempotency.digest}
        statement = INSERT_IF_RUNNING if idempotency is None else CLAIM_AND_INSERT_IF_RUNNING
        inserted = await self._session.execute(statement, parameters)
        found = inserted.one_or_none()
        if found is None:
            return None
        sandbox, row.created_at, row.recorded_until = found
        return sandbox, row

    async def store(
        self, tenant_id: str, writes: Sequence[LogWrite], *, by: str, lease: timedelta
    ) -> dict[str, WriteResult]:
        """Write output of commands of one tenant in one statement; returns those that `by` still records."""
        parameters = _parameters(writes) | {"tenant_id": tenant_id, "by": by, "lease": lease}
        rows = await self._session.execute(STORE, parameters)
        return {row[0]: WriteResult(*row[1:5]) for row in rows}

    async def find_result(self, command_id: str, *, by: str, after: int) -> WriteResult | None:
        """Find the result of an earlier write by `by` beyond the number `after`."""
        row = Command
        columns = (row.last_seq, row.started_at, row.expires_at, row.ended_at)
        found = await self._session.execute(
            select(*columns).where(
                row.id == command_id, row.recorded_by == by, row.last_seq > after
            )
        )
        result = found.one_or_none()
        return None if result is None else WriteResult(*result)

    async def extend(self, ids: Iterable[str], *, by: str, lease: timedelta) -> set[str]:
        """Renew leases; returns the ids that are still leased to `by`."""
        parameters = {"ids": list(ids), "by": by, "lease": lease}
        return set(await self._session.scalars(EXTEND, parameters))

    async def is_recorded_by(self, command_id: str, *, by: str) -> bool:
        recorder = select(Command.recorded_by).where(Command.id == command_id)
        return await self._session.scalar(recorder) == by

    async def claim_lapsed(
        self, *, by: str, lease: timedelta, limit: int
    ) -> Sequence[tuple[Command, datetime]]:
        """Claim commands whose lease has expired, each with the database's time."""
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
        """Release the leases and notify other servers."""
        released = (
            update(Command)
            .where(Command.id.in_(list(ids)), Command.recorded_by == by, Command.ended_at.is_(None))
            .values(recorded_until=NOW)
            .returning(func.pg_notify(RELEASED_CHANNEL, ""))
            .execution_options(synchronize_session=False)
        )
        await self._session.execute(released)

    async def interrupt(self, command_id: str) -> None:
        """Notify the server that records the command."""
        await self._session.execute(select(func.pg_notify(INTERRUPTED_CHANNEL, command_id)))

    async def list_stored(self, command_id: str) -> Sequence[StoredRow]:
        """List the stored records of a command's log, without their content."""
        row = CommandOutput
        columns = (row.seq, row.type, row.offset, func.octet_length(row.content), row.data)
        found = await self._session.execute(
            select(*columns)
            .where(row.command_id == command_id, row.type != RecordType.RESIZED)
            .order_by(row.seq)
        )
        return [StoredRow(*row) for row in found]


def _parameters(writes: Sequence[LogWrite]) -> dict[str, Any]:
    records = [
        (write.command_id, number, record)
        for write in writes
        for number, record in enumerate(write.records)
    ]
    deleted = [(write.command_id, seq) for write in writes for seq in write.deleted]
    gaps = [(write.command_id, gap) for write in writes for gap in write.gaps]
    commands = [
        {
            "id": write.command_id,
            "last_seq": write.last_seq,
            "count": len(write.records),
            **write.changes,
        }
        for write in writes
    ]
    return {
        "commands": json.dumps(commands),
        "ids": [command_id for command_id, _, _ in records],
        "numbers": [number for _, number, _ in records],
        "types": [record.type for _, _, record in records],
        "starts": [record.offset for _, _, record in records],
        "contents": [record.content for _, _, record in records],
        "datas": [json.dumps(dict(record.data)) for _, _, record in records],
        "deleted_ids": [command_id for command_id, _ in deleted],
        "deleted_seqs": [seq for _, seq in deleted],
        "cut_ids": [command_id for command_id, _ in gaps],
        "cut_seqs": [gap.seq for _, gap in gaps],
        "cut_starts": [gap.offset for _, gap in gaps],
        "cut_datas": [json.dumps(dict(gap.data)) for _, gap in gaps],
    }
