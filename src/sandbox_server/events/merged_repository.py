from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Row,
    Select,
    Text,
    and_,
    any_,
    bindparam,
    case,
    column,
    exists,
    func,
    not_,
    select,
    true,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, aliased

from sandbox_server.db.models import Command, CommandOutput, Event, Sandbox, Stream, Task
from sandbox_server.domain.commands import CommandKind
from sandbox_server.log.output_repository import LARGEST_PART
from sandbox_server.log.records import Record, RecordType


@dataclass(frozen=True, kw_only=True)
class MergedLog:
    """A selection of a tenant's sandboxes and kinds of records."""

    tenant_id: str
    sandbox_ids: Sequence[str]
    task_id: str | None = None
    """A task whose events are in the log too; it ends with the task."""
    events: bool
    kinds: Collection[CommandKind]


@dataclass(frozen=True, kw_only=True)
class LogState:
    """State of a log as a whole."""

    last_seq: int = 0
    """Last issued number: all records up to it can be read."""
    events_removed_seq: int = 0
    events_removed_at: datetime | None = None
    output_removed_seq: int = 0
    output_removed_at: datetime | None = None
    """Number and time of the last removed records."""
    first_created_at: datetime | None = None
    """Creation time of the oldest sandbox that still has a row."""
    has_ended: bool = False
    """All sandboxes and selected commands have ended."""


@dataclass(frozen=True)
class Output:
    """A record of a command's log, with the command's kind and name."""

    record: Record
    kind: CommandKind
    name: str | None


@dataclass(frozen=True, kw_only=True)
class MergedPart:
    """A part of a log."""

    events: Sequence[Event] = ()
    output: Sequence[Output] = field(default=())
    position: int
    """Number up to which the part is complete."""
    more: bool


class MergedLogRepository:
    """Reads events and output of sandboxes in the order of the tenant's log."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_state(self, log: MergedLog) -> LogState:
        """Read the state of the log; call it before `read`."""
        statement = _STATE if log.task_id is None else _STATE_OF_TASK
        row = (await self._session.execute(statement, _parameters(log))).one_or_none()
        return LogState() if row is None else LogState(**row._asdict())

    async def read(self, log: MergedLog, *, after: int, until: int, limit: int) -> MergedPart:
        """Read records after one number, up to another."""
        parameters = _parameters(log) | {"after": after, "until": until, "limit": limit}
        statement = _EVENTS if log.task_id is None else _EVENTS_OF_TASK
        events = list(await self._session.scalars(statement, parameters)) if log.events else []
        output, seen, more = (
            await self._read_output(parameters) if log.kinds else ([], until, False)
        )
        position = until
        if len(events) == limit:
            position, more = events[-1].seq, True
        return _limit_part(events, output, limit=limit, position=min(position, seen), more=more)

    async def find_tail(self, log: MergedLog, *, count: int) -> int:
        """Find the number after which the last `count` records come."""
        parameters = _parameters(log) | {"limit": count + 1}
        statement = _LAST_EVENTS if log.task_id is None else _LAST_EVENTS_OF_TASK
        found = list(await self._session.scalars(statement, parameters)) if log.events else []
        if log.kinds:
            found += await self._session.scalars(_LAST_OUTPUT, parameters)
        found.sort(reverse=True)
        return found[count] if len(found) > count else 0

    async def _read_output(self, parameters: dict[str, Any]) -> tuple[list[Output], int, bool]:
        """Read output; returns records, position and whether there is more."""
        rows = (await self._session.execute(_OUTPUT, parameters)).all()
        is_full = len(rows) == parameters["limit"] or sum(row.size for row in rows) >= LARGEST_PART
        seen = rows[-1].seq if is_full else parameters["until"]
        return [_output(row) for row in rows if row.is_selected], seen, is_full


def _parameters(log: MergedLog) -> dict[str, Any]:
    return {
        "tenant_id": log.tenant_id,
        "sandbox_ids": list(log.sandbox_ids),
        "kinds": [kind.value for kind in log.kinds],
        **({} if log.task_id is None else {"task_id": log.task_id}),
    }


def _limit_part(
    events: Sequence[Event], output: Sequence[Output], *, limit: int, position: int, more: bool
) -> MergedPart:
    """Limit the part, and remove records beyond the position up to which all were read."""
    numbers = sorted(
        number
        for number in (
            *(event.seq for event in events),
            *(each.record.seq for each in output),
        )
        if number <= position
    )
    if len(numbers) > limit:
        position, more = numbers[limit - 1], True
    return MergedPart(
        events=[event for event in events if event.seq <= position],
        output=[each for each in output if each.record.seq <= position],
        position=position,
        more=more,
    )


def _output(row: Row[Any]) -> Output:
    record = Record(
        seq=row.seq,
        command_id=row.command_id,
        sandbox_id=row.sandbox_id,
        type=RecordType(row.type),
        offset=row.start,
        content=row.content,
        data=row.data,
        at=row.at,
    )
    return Output(record, CommandKind(row.kind), row.name)


_sandbox_ids = bindparam("sandbox_ids", type_=ARRAY(Text))
_each = func.unnest(_sandbox_ids).table_valued(column("id", Text), name="each").render_derived()
_tenant_id = bindparam("tenant_id", type_=Text)
_task_id = bindparam("task_id", type_=Text)
_limit = bindparam("limit", type_=BigInteger)
_is_selected = Command.kind.cast(Text) == any_(bindparam("kinds", type_=ARRAY(Text)))


def _between(seq: InstrumentedAttribute[int]) -> ColumnElement[bool]:
    after, until = (bindparam(name, type_=BigInteger) for name in ("after", "until"))
    return (seq > after) & (seq <= until)


def _state() -> Select[*tuple[Any, ...]]:
    own = Sandbox.tenant_id == _tenant_id, Sandbox.id == any_(_sandbox_ids)
    any_running = exists().where(*own, Sandbox.ended_at.is_(None))
    any_command = exists().where(
        Command.sandbox_id == any_(_sandbox_ids), Command.ended_at.is_(None), _is_selected
    )
    return select(
        (Stream.next_seq - 1).label("last_seq"),
        Stream.removed_seq.label("events_removed_seq"),
        Stream.removed_at.label("events_removed_at"),
        Stream.output_removed_seq,
        Stream.output_removed_at,
        select(func.min(Sandbox.created_at))
        .where(*own)
        .scalar_subquery()
        .label("first_created_at"),
        and_(not_(any_running), not_(any_command)).label("has_ended"),
    ).where(Stream.tenant_id == _tenant_id)


def _events() -> Select[*tuple[Any, ...]]:
    of_sandbox = select(Event).where(
        Event.tenant_id == _tenant_id, Event.sandbox_id == _each.c.id, _between(Event.seq)
    )
    first_rows = of_sandbox.order_by(Event.seq).limit(_limit).lateral("first_rows")
    event = aliased(Event, first_rows)
    return (
        select(event).select_from(_each.join(first_rows, true())).order_by(event.seq).limit(_limit)
    )


def _state_of_task() -> Select[*tuple[Any, ...]]:
    """Select the state of a log that begins and ends with a task, whatever sandboxes it has."""
    own = Task.tenant_id == _tenant_id, Task.id == _task_id
    return select(
        (Stream.next_seq - 1).label("last_seq"),
        Stream.removed_seq.label("events_removed_seq"),
        Stream.removed_at.label("events_removed_at"),
        Stream.output_removed_seq,
        Stream.output_removed_at,
        select(Task.created_at).where(*own).scalar_subquery().label("first_created_at"),
        not_(exists().where(*own, Task.ended_at.is_(None))).label("has_ended"),
    ).where(Stream.tenant_id == _tenant_id)


def _events_of_task() -> Select[*tuple[Any, ...]]:
    of_task = select(Event).where(
        Event.tenant_id == _tenant_id, Event.task_id == _task_id, _between(Event.seq)
    )
    of_task = of_task.order_by(Event.seq).limit(_limit)
    both = union_all(of_task, _events()).subquery("both")
    event = aliased(Event, both)
    return select(event).order_by(event.seq).limit(_limit)


def _last_events_of_task() -> Select[*tuple[Any, ...]]:
    of_task = select(Event.seq).where(Event.tenant_id == _tenant_id, Event.task_id == _task_id)
    of_task = of_task.order_by(Event.seq.desc()).limit(_limit)
    both = union_all(of_task, _last_events()).subquery("both")
    return select(both.c.seq).order_by(both.c.seq.desc()).limit(_limit)


def _output_of_all() -> Select[*tuple[Any, ...]]:
    """Select records with the number of bytes before each, which does not read the bytes."""
    of_sandbox = select(CommandOutput).where(
        CommandOutput.sandbox_id == _each.c.id, _between(CommandOutput.seq)
    )
    first_rows = of_sandbox.order_by(CommandOutput.seq).limit(_limit).lateral("first_rows")
    record = aliased(CommandOutput, first_rows)
    size = case((_is_selected, func.octet_length(record.content)), else_=0)
    numbered = (
        select(
            record.seq,
            record.command_id,
            record.sandbox_id,
            record.type,
            record.offset.label("start"),
            record.content,
            record.data,
            record.created_at.label("at"),
            Command.kind.label("kind"),
            Command.name.label("name"),
            _is_selected.label("is_selected"),
            size.label("size"),
            (func.sum(size).over(order_by=record.seq) - size).label("before"),
        )
        .select_from(_each.join(first_rows, true()))
        .join(Command, Command.id == record.command_id)
        .order_by(record.seq)
        .limit(_limit)
        .subquery()
    )
    columns = [each for each in numbered.c if each.name not in {"content", "before"}]
    content = case((numbered.c.is_selected, numbered.c.content), else_=b"").label("content")
    fitting = select(*columns, content).where(numbered.c.before < LARGEST_PART)
    return fitting.order_by(numbered.c.seq)


def _last_events() -> Select[*tuple[Any, ...]]:
    of_sandbox = select(Event.seq).where(
        Event.tenant_id == _tenant_id, Event.sandbox_id == _each.c.id
    )
    first_rows = of_sandbox.order_by(Event.seq.desc()).limit(_limit).lateral("first_rows")
    found = select(first_rows.c.seq).select_from(_each.join(first_rows, true()))
    return found.order_by(first_rows.c.seq.desc()).limit(_limit)


def _last_output() -> Select[*tuple[Any, ...]]:
    of_sandbox = (
        select(CommandOutput.seq)
        .join(Command, Command.id == CommandOutput.command_id)
        .where(CommandOutput.sandbox_id == _each.c.id, _is_selected)
    )
    first_rows = of_sandbox.order_by(CommandOutput.seq.desc()).limit(_limit).lateral("first_rows")
    found = select(first_rows.c.seq).select_from(_each.join(first_rows, true()))
    return found.order_by(first_rows.c.seq.desc()).limit(_limit)


_STATE = _state()
_EVENTS = _events()
_OUTPUT = _output_of_all()
_LAST_EVENTS = _last_events()
_LAST_OUTPUT = _last_output()
_STATE_OF_TASK = _state_of_task()
_EVENTS_OF_TASK = _events_of_task()
_LAST_EVENTS_OF_TASK = _last_events_of_task()
