import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.agents.lines import LONGEST_LINE, Line, Lines, Missing, lines_of
from sandbox_server.agents.results import find_result
from sandbox_server.db.models import Command
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.agents import read_line
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import RecordType
from sandbox_server.log.source import Item, Page


@dataclass(frozen=True, kw_only=True)
class AgentRunSource:
    """What an agent says while it works, and as the last of all how that ended.

    Its numbers are the offsets of lines and not those of the tenant's log, since a line may be in many records.
    """

    tenant_id: str
    run_id: str

    @property
    def topic(self) -> str:
        return f"command/{self.run_id}"

    async def read(self, sessions: Sessions, *, after: int, limit: int) -> Page:
        async with without_transaction(sessions) as session:
            # First how it is: of one that has ended, all that it said is stored.
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
        lines = Lines(after=2 * last[0].offset)
        numbers = [2 * last[0].offset, *(said.number for said in lines_of(last, lines))]
        return numbers[-count - 1] if count < len(numbers) else numbers[0]


async def _read(session: AsyncSession, run: Command, *, after: int, limit: int) -> Page:
    """Read on until there is a line, or nothing more for now."""
    output = CommandOutputRepository(session)
    lines, said = Lines(after=after), list[Line | Missing]()
    seq, more = await output.find_seq_at(run.id, RecordType.STDOUT, offset=lines.start), True
    while more and not said:
        part = await output.list_stream_after(run.id, RecordType.STDOUT, after=seq, limit=limit)
        said += lines_of(part.records, lines)
        more, seq = part.more, part.records[-1].seq if part.records else seq
    ended_at = None if more else run.ended_at
    if ended_at is not None:
        said += lines.finish(ended_at)
    position = said[-1].number if said else after
    items = list(_told(said, run_id=run.id))
    if ended_at is not None:
        items.append(await _last_of(output, run, after=position, at=ended_at))
        position = items[-1].id
    return Page(items, position, more=more, over=ended_at is not None)


def _told(said: list[Line | Missing], *, run_id: str) -> Iterator[Item]:
    for each in said:
        item = item_of(each, run_id=run_id)
        if item is not None:
            yield item


async def _last_of(
    output: CommandOutputRepository, run: Command, *, after: int, at: datetime
) -> Item:
    result = await find_result(output, run)
    assert result is not None
    return make_item(max(after + 1, _end_of(run)), {"type": "result", **result.document()}, at)


def _end_of(run: Command) -> int:
    """Give the number of the last event of a run that has ended: beyond all lines, and whatever is missing after them."""
    return 2 * run.stdout_size + 2


_STARTED = "started"
_TOLD = (_STARTED, "message")
_RESULT = "result"
_LONGEST_TEXT = 4096


def item_of(said: Line | Missing, *, run_id: str) -> Item | None:
    """Tell a line, unless it is the result, which is told when the run has ended."""
    if isinstance(said, Missing):
        return make_item(said.number, {"type": "gap", "size": said.size}, said.at)
    document = read_line(said.content)
    kind = document.get("type")
    if kind == _RESULT:
        return None
    if kind in _TOLD:
        if kind == _STARTED:
            document = {**document, "run_id": run_id}
        try:
            return make_item(said.number, document, said.at)
        except (ValueError, RecursionError):
            pass
    return _as_text(said)


def make_item(number: int, told: Mapping[str, Any], at: datetime) -> Item:
    document = {**told, "at": at.isoformat().replace("+00:00", "Z")}
    # A number that is none, and a half of a character, are no JSON.
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Item(number, text.encode(errors="replace"))


def _as_text(said: Line) -> Item | None:
    text = said.content.decode(errors="replace").strip()
    if not text:
        return None
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}… [{len(text) - _LONGEST_TEXT} more characters]"
    return make_item(said.number, {"type": "text", "text": text}, said.at)
