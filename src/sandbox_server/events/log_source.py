"""Events and output of sandboxes in one stream; each item has a source.

source   events                 an event of a sandbox
         command terminal code  a record of a command's log, see log/records.py
         service                a record of a service's log, with the service's `name`
         (none)                 a gap: older records were removed
"""

import json
from dataclasses import dataclass
from enum import StrEnum

from sandbox_server.db.models import Event
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.commands import CommandKind
from sandbox_server.events.event_source import find_gap, view_event
from sandbox_server.events.merged_repository import LogState, MergedLog, MergedLogRepository, Output
from sandbox_server.log.event_repository import EventLog
from sandbox_server.log.serialize import serialize
from sandbox_server.log.source import Item, Page


class LogKind(StrEnum):
    EVENTS = "events"
    COMMAND = "command"
    TERMINAL = "terminal"
    SERVICE = "service"
    AGENT = "agent"
    CODE = "code"


# Without terminals, whose raw output is seldom useful in a merged log.
USUAL = frozenset(LogKind) - {LogKind.TERMINAL}


@dataclass(frozen=True, kw_only=True)
class LogSource:
    """Events and output of some of a tenant's sandboxes, until all of them have ended."""

    tenant_id: str
    sandbox_ids: tuple[str, ...]
    kinds: frozenset[LogKind] = USUAL
    task_id: str | None = None
    """A task whose events are included; the log then ends with the task."""

    @property
    def topic(self) -> str:
        of_task = [] if self.task_id is None else [f"task/{self.task_id}"]
        return " ".join([*of_task, *(f"sandbox/{sandbox_id}" for sandbox_id in self.sandbox_ids)])

    async def read(self, sessions: Sessions, *, after: int, limit: int) -> Page:
        log = self._log
        async with without_transaction(sessions) as session:
            merged = MergedLogRepository(session)
            state = await merged.find_state(log)
            gap = find_gap(self._kept(state), after=after)
            if gap is not None:
                return Page(items=[gap], position=gap.id, more=True)
            part = await merged.read(log, after=after, until=state.last_seq, limit=limit)
        items = [*map(_event_item, part.events), *map(_output_item, part.output)]
        return Page(
            items=sorted(items, key=lambda item: item.id),
            position=part.position,
            more=part.more,
            over=state.has_ended and not part.more,
        )

    async def find_tail(self, sessions: Sessions, *, count: int) -> int:
        async with without_transaction(sessions) as session:
            merged = MergedLogRepository(session)
            state = await merged.find_state(self._log)
            found = await merged.find_tail(self._log, count=count)
        return max(found, self._kept(state).removed_seq)

    @property
    def _log(self) -> MergedLog:
        return MergedLog(
            tenant_id=self.tenant_id,
            sandbox_ids=self.sandbox_ids,
            task_id=self.task_id,
            events=LogKind.EVENTS in self.kinds,
            kinds=[CommandKind(kind) for kind in sorted(self.kinds - {LogKind.EVENTS})],
        )

    def _kept(self, state: LogState) -> EventLog:
        """Return up to which number the selected records were removed."""
        removed = []
        if LogKind.EVENTS in self.kinds:
            removed.append((state.events_removed_seq, state.events_removed_at))
        if self.kinds - {LogKind.EVENTS}:
            removed.append((state.output_removed_seq, state.output_removed_at))
        seq, at = max(removed, key=lambda each: each[0], default=(0, None))
        return EventLog(
            last_seq=state.last_seq,
            removed_seq=seq,
            removed_at=at,
            created_at=state.first_created_at,
        )


def _event_item(event: Event) -> Item:
    fields = view_event(event).model_dump(mode="json")
    return _item(event.seq, {"source": LogKind.EVENTS.value, **fields})


def _output_item(output: Output) -> Item:
    record = output.record
    fields = {
        "source": output.kind.value,
        "seq": record.seq,
        "sandbox_id": record.sandbox_id,
        "command_id": record.command_id,
        **({} if output.name is None else {"name": output.name}),
        **serialize(record),
    }
    return _item(record.seq, fields)


def _item(number: int, fields: dict[str, object]) -> Item:
    return Item(number, json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode())
