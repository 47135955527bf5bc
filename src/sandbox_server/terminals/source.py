from dataclasses import dataclass

from sandbox_server.commands.output_source import CommandOutputSource
from sandbox_server.log.records import Record
from sandbox_server.log.source import Item


@dataclass(frozen=True, slots=True)
class TerminalItem(Item):
    """A record of a terminal's log, for viewers that receive raw bytes."""

    record: Record


@dataclass(frozen=True, kw_only=True)
class TerminalSource(CommandOutputSource):
    """The output of one terminal, until it has ended."""

    def item_of(self, record: Record) -> TerminalItem:
        return TerminalItem(record.seq, record.content, record)
