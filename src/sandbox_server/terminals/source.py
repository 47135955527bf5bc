from dataclasses import dataclass

from sandbox_server.commands.output_source import CommandOutputSource
from sandbox_server.log.records import Record
from sandbox_server.log.source import Item


@dataclass(frozen=True, slots=True)
class Shown(Item):
    """A record of a terminal's log, for viewers that take it as bytes."""

    record: Record


@dataclass(frozen=True, kw_only=True)
class TerminalSource(CommandOutputSource):
    """What one terminal shows, until it has ended."""

    def item_of(self, record: Record) -> Shown:
        return Shown(record.seq, record.content, record)
