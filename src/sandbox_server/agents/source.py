import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.agents.line_assembler import LONGEST_LINE, Gap, Line, LineAssembler, lines_of
from sandbox_server.agents.results import find_result
from sandbox_server.db.models import Command
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.agents import read_line
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import RecordType
from sandbox_server.log.source import Item, Page


@dataclass(frozen=True, kw_only=True)
class AgentRunSource:
    """The events of an agent run, ending with its result.

    Event numbers derive from offsets of lines, not from the tenant's log, since a line can span several records.
    """

    tenant_id: str
    run_id: str

    @property
    def topic(self) -> str:
        return f"command/{self.run_id}"

    async def read(self, sessions: Sessions, *, after: int, limit: int) -> Page:
        async with without_transaction(sessions) as session:
            # The state is read first: once the run has ended, all of its output is stored.
            run = await session.get(Command, self.run_id)
            if run is None or (run.ended_at is not None and after >= _end_of(run)):
                return Page(items=(), position=after, more=False, over=True)
            return await _read(session, run, after=after, limit=limit)

    async def find_tail(self, sessions: Sessions, *, count: int) -> int:
        async with without_transaction(sessions) as session:
            output = CommandOutputRepository(session)
            last = await output.list_last(self.run_id, RecordType.STDOUT, max_bytes=LONGEST_LINE)
        if not last:
            return 0
        lines = LineAssembler(after=2 * last[0].offset)
        numbers = [2 * last[0].offset, *(line.number for line in lines_of(last, lines))]
        return numbers[-count - 1] if count < len(numbers) else numbers[0]


async def _read(session: AsyncSession, run: Command, *, after: int, limit: int) -> Page:
    """Read until there is a line, or no more output for now."""
    output = CommandOutputRepository(session)
    assembler, lines = LineAssembler(after=after), list[Line | Gap]()
    seq, more = await output.find_seq_at(run.id, RecordType.STDOUT, offset=assembler.start), True
    while more and not lines:
        part = await output.list_stream_after(run.id, RecordType.STDOUT, after=seq, limit=limit)
        lines += lines_of(part.records, assembler)
        more, seq = part.more, part.records[-1].seq if part.records else seq
    ended_at = None if more else run.ended_at
    if ended_at is not None:
        lines += assembler.finish(ended_at)
    position = lines[-1].number if lines else after
    items = list(_to_items(lines, run_id=run.id))
    if ended_at is not None:
        items.append(await _result_item(output, run, after=position, at=ended_at))
        position = items[-1].id
    return Page(items, position, more=more, over=ended_at is not None)


def _to_items(lines: list[Line | Gap], *, run_id: str) -> Iterator[Item]:
    for line in lines:
        item = to_item(line, run_id=run_id)
        if item is not None:
            yield item


async def _result_item(
    output: CommandOutputRepository, run: Command, *, after: int, at: datetime
) -> Item:
    result = await find_result(output, run)
    assert result is not None
    return make_item(max(after + 1, _end_of(run)), {"type": "result", **result.document()}, at)


def _end_of(run: Command) -> int:
    """Return the number of the last event of an ended run: after all lines, and after a gap at the end."""
    return 2 * run.stdout_size + 2


_STARTED = "started"
_MESSAGE_TYPES = (_STARTED, "message")
_RESULT = "result"
_LONGEST_TEXT = 4096


def to_item(line: Line | Gap, *, run_id: str) -> Item | None:
    """Convert a line to an event; None for the result, which is sent once the run has ended.

    Lines that are not valid messages become `text` events: the output of a sandbox is not trusted.
    """
    if isinstance(line, Gap):
        return make_item(line.number, {"type": "gap", "size": line.size}, line.at)
    document = read_line(line.content)
    kind = document.get("type")
    if kind == _RESULT:
        return None
    if kind in _MESSAGE_TYPES:
        if kind == _STARTED:
            document = {**document, "run_id": run_id}
        try:
            return make_item(line.number, document, line.at)
        except (ValueError, RecursionError):
            pass
    return _to_text(line)


def make_item(number: int, fields: Mapping[str, Any], at: datetime) -> Item:
    document = {**fields, "at": at.isoformat().replace("+00:00", "Z")}
    # NaN is rejected and lone surrogates are replaced: neither is valid JSON.
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Item(number, text.encode(errors="replace"))


def _to_text(line: Line) -> Item | None:
    text = line.content.decode(errors="replace").strip()
    if not text:
        return None
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}… [{len(text) - _LONGEST_TEXT} more characters]"
    return make_item(line.number, {"type": "text", "text": text}, line.at)
