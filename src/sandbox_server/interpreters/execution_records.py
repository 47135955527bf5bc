from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.commands.command_log import OUTPUTS, Batch
from sandbox_server.db.models import Command
from sandbox_server.log.records import Record, RecordType

OUTCOME = (RecordType.RESULT, RecordType.ERROR, RecordType.EXIT)

_OUTPUT = (*OUTPUTS, RecordType.GAP)
# Per execution, of which a tenant may have thousands. Most have less, and for others two queries take no noticeable time.
_MOST_KEPT = 64 * 1024


@dataclass(frozen=True)
class ExecutionRecords:
    """What is recorded of an execution: the ends of its output, and its results."""

    output: Sequence[Record]
    outcome: Sequence[Record]


class StoredRecords:
    """Keeps the records of a small execution once they are stored, so that its answer needs no query."""

    def __init__(self, row: Command) -> None:
        self._row = row
        self._records: list[Record] | None = []
        self._size = 0

    def add(self, batch: Batch, *, last_seq: int) -> None:
        """Keep a batch that was stored, or none at all if they are too large."""
        self._size += batch.cost
        if self._size > _MOST_KEPT or batch.evicted:
            self._records = None
        if self._records is None:
            return
        first = last_seq + 1 - len(batch.records)
        self._records += [
            Record(
                seq=seq,
                command_id=self._row.id,
                sandbox_id=self._row.sandbox_id,
                type=piece.type,
                offset=piece.offset,
                content=bytes(piece.content),
                data=piece.data,
                at=self._row.created_at,  # about: answers do not contain it
            )
            for seq, piece in enumerate(batch.records, start=first)
        ]

    def read(self) -> ExecutionRecords | None:
        """Return the records as they would be read from the database; None if they were too large to be kept."""
        if self._records is None:
            return None
        return ExecutionRecords(
            [each for each in self._records if each.type in _OUTPUT],
            [each for each in self._records if each.type in OUTCOME],
        )
