import json
from dataclasses import dataclass

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.log.output_repository import CommandOutputRepository, Part
from sandbox_server.log.records import Record, RecordType
from sandbox_server.log.serialize import serialize
from sandbox_server.log.source import Item, Page


@dataclass(frozen=True, kw_only=True)
class CommandOutputSource:
    """A command's recorded output, until the command has ended."""

    tenant_id: str
    command_id: str

    @property
    def topic(self) -> str:
        return f"command/{self.command_id}"

    async def read(self, sessions: Sessions, *, after: int, limit: int) -> Page:
        async with without_transaction(sessions) as session:
            output = CommandOutputRepository(session)
            part = await output.list_after(self.command_id, after=after, limit=limit)
            if part.records or not await output.has_ended(self.command_id):
                return self._page(part, after=after)
            # The last records may have been written between the two queries.
            part = await output.list_after(self.command_id, after=after, limit=limit)
            return self._page(part, after=after, over=not part.records)

    async def find_tail(self, sessions: Sessions, *, count: int) -> int:
        async with without_transaction(sessions) as session:
            return await CommandOutputRepository(session).find_tail(self.command_id, count=count)

    def item_of(self, record: Record) -> Item:
        text = json.dumps(serialize(record), ensure_ascii=False, separators=(",", ":"))
        return Item(record.seq, text.encode())

    def _page(self, part: Part, *, after: int, over: bool = False) -> Page:
        if not part.records:
            return Page(items=(), position=after, more=False, over=over)
        last = part.records[-1]
        items = [self.item_of(record) for record in part.records]
        return Page(items, last.seq, more=part.more, over=last.type is RecordType.EXIT)
