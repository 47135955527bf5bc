"""All that is written about commands. Who records one holds its lease; nobody else's words count."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Interval,
    LargeBinary,
    Text,
    bindparam,
    false,
    func,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.events import GREW
from sandbox_server.db.models import Command, CommandOutput, Row
from sandbox_server.domain.commands import CommandKind, CommandState
from sandbox_server.streams.records import RecordType

# The channel on which it is said that commands were left for others to record.
LEFT = "commands_left"

_now = func.statement_timestamp()
_lease = bindparam("lease", type_=Interval)

_FRESH = {
    "kind": CommandKind.COMMAND,
    "state": CommandState.STARTING,
    **dict.fromkeys(("background", "stdin"), False),
    **dict.fromkeys(("last_seq", "stdout_size", "stderr_size", "stdout_cut", "stderr_cut"), 0),
}
_GIVEN = (
    *("id", "tenant_id", "sandbox_id", "kind", "name", "cmd", "cwd", "user", "background", "stdin"),
    *("cols", "rows", "timeout", "expires_at", "state", "recorded_by"),
)
_mapped = Command.__mapper__.columns
# Built once, and without rows of the ORM: a short command took a fifth longer with them.
_ADD = (
    insert(Row.metadata.tables["commands"])
    .values(
        {_mapped[name]: bindparam(f"new_{name}", type_=_mapped[name].type) for name in _GIVEN}
        | {_mapped["recorded_until"]: _now + _lease}
    )
    .returning(_mapped["created_at"], _mapped["recorded_until"])
)
_EXTEND = (
    update(Command)
    .where(Command.id == func.any(bindparam("ids", type_=ARRAY(Text))))
    # Wrapped, since by the index of what has not ended the planner would read all of that.
    .where(
        Command.recorded_by == bindparam("by"), func.coalesce(Command.ended_at.is_(None), false())
    )
    .values(recorded_until=_now + _lease)
    .returning(Command.id)
    .execution_options(synchronize_session=False)
)
# Numbers are taken last: whoever waits for the counter holds its commands, and nobody who has it waits for those.
# Each command is looked up by itself: the planner would read all that have not ended.
_STORE = text(f"""
WITH given AS (
    SELECT * FROM jsonb_to_recordset(CAST(:commands AS jsonb)) AS given(
        id text, last_seq bigint, count bigint, state text, state_reason text, exit_code int, pid int,
        started boolean, stdout_size bigint, stderr_size bigint, stdout_cut bigint, stderr_cut bigint)
), held AS (
    SELECT command.sandbox_id, given.*
    FROM (SELECT * FROM given ORDER BY id) AS given, LATERAL (
        SELECT sandbox_id FROM commands
        WHERE commands.id = given.id AND commands.last_seq = given.last_seq AND commands.recorded_by = :by
            AND commands.ended_at IS NULL
        LIMIT 1 FOR UPDATE
    ) AS command
), placed AS (
    SELECT held.*, sum(count) OVER (ORDER BY id) - count AS before, sum(count) OVER () AS total FROM held
), taken AS (
    INSERT INTO streams (tenant_id, next_seq) SELECT :tenant_id, 1 + max(total) FROM placed HAVING count(*) > 0
    ON CONFLICT (tenant_id) DO UPDATE SET next_seq = streams.next_seq + excluded.next_seq - 1
    RETURNING next_seq
), numbered AS (
    SELECT placed.*, taken.next_seq - total + before AS first FROM placed, taken
), kept AS (
    INSERT INTO command_output (sandbox_id, seq, command_id, type, start, content, data)
    SELECT sandbox_id, first + record.number, id, record.type, record.start, record.content, CAST(record.data AS jsonb)
    FROM unnest(:ids, :numbers, :types, :starts, :contents, :datas)
        AS record(command_id, number, type, start, content, data)
    JOIN numbered ON numbered.id = record.command_id
), gone AS (
    DELETE FROM command_output USING numbered, unnest(:gone_ids, :gone_seqs) AS fallen(command_id, seq)
    WHERE numbered.id = fallen.command_id
        AND command_output.sandbox_id = numbered.sandbox_id AND command_output.seq = fallen.seq
), cut AS (
    UPDATE command_output SET type = 'gap', content = '', start = fallen.start, data = CAST(fallen.data AS jsonb)
    FROM numbered, unnest(:cut_ids, :cut_seqs, :cut_starts, :cut_datas) AS fallen(command_id, seq, start, data)
    WHERE numbered.id = fallen.command_id
        AND command_output.sandbox_id = numbered.sandbox_id AND command_output.seq = fallen.seq
)
UPDATE commands SET
    last_seq = first + count - 1,
    recorded_until = statement_timestamp() + :lease,
    state = coalesce(numbered.state, commands.state),
    state_reason = coalesce(numbered.state_reason, commands.state_reason),
    exit_code = coalesce(numbered.exit_code, commands.exit_code),
    pid = coalesce(numbered.pid, commands.pid),
    started_at = CASE WHEN started THEN clock_timestamp() ELSE started_at END,
    expires_at = CASE WHEN started THEN clock_timestamp() + commands.timeout ELSE expires_at END,
    ended_at = CASE WHEN numbered.state IN ('starting', 'running') THEN NULL
        WHEN numbered.state IS NOT NULL THEN clock_timestamp() END,
    stdout_size = numbered.stdout_size, stderr_size = numbered.stderr_size,
    stdout_cut = numbered.stdout_cut, stderr_cut = numbered.stderr_cut
FROM numbered WHERE commands.id = numbered.id
RETURNING commands.id, commands.last_seq, commands.started_at, commands.expires_at, commands.ended_at,
    pg_notify('{GREW}', 'sandbox/' || commands.sandbox_id || ' command/' || commands.id)
""").bindparams(  # noqa: S608 - the channel's name is ours
    bindparam("lease", type_=Interval),
    *(
        bindparam(name, type_=ARRAY(type_))
        for type_, names in {
            Text: ("ids", "types", "datas", "gone_ids", "cut_ids", "cut_datas"),
            BigInteger: ("numbers", "starts", "gone_seqs", "cut_seqs", "cut_starts"),
            LargeBinary: ("contents",),
        }.items()
        for name in names
    ),
)


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
        row = Command(**{**_FRESH, **columns}, recorded_by=by)
        given = {f"new_{name}": getattr(row, name) for name in _GIVEN}
        inserted = await self._session.execute(_ADD, {**given, "lease": lease})
        row.created_at, row.recorded_until = inserted.one()
        return row

    async def store(
        self, tenant_id: str, growths: Sequence[Growth], *, by: str, lease: timedelta
    ) -> dict[str, Grown]:
        """Store what commands of one tenant wrote, in one statement; gives those of which it was `by` who records them."""
        given = _parameters(growths) | {"tenant_id": tenant_id, "by": by, "lease": lease}
        rows = await self._session.execute(_STORE, given)
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
        return set(await self._session.scalars(_EXTEND, given))

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
            .where(Command.ended_at.is_(None), Command.recorded_until <= _now)
            .order_by(Command.recorded_until)
            .limit(limit)
            .with_for_update(skip_locked=True)
            .cte("lapsed")
        )
        claimed = await self._session.execute(
            update(Command)
            .where(Command.id == lapsed.c.id)
            .values(recorded_by=by, recorded_until=_now + literal(lease, Interval))
            .returning(Command, _now)
            .execution_options(synchronize_session=False)
        )
        return [(row[0], row[1]) for row in claimed]

    async def release(self, ids: Iterable[str], *, by: str) -> None:
        """Leave commands to whoever goes on with them, and say so."""
        released = (
            update(Command)
            .where(Command.id.in_(list(ids)), Command.recorded_by == by, Command.ended_at.is_(None))
            .values(recorded_until=_now)
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
