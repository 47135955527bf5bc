import json
from dataclasses import dataclass

from sandbox_server.commands.output_source import CommandOutputSource
from sandbox_server.log.records import Record, RecordType
from sandbox_server.log.serialize import serialize
from sandbox_server.log.source import Item


@dataclass(frozen=True, kw_only=True)
class ExecutionSource(CommandOutputSource):
    """The recorded output and results of an execution of code, until it has ended."""

    def item_of(self, record: Record) -> Item:
        fields = serialize(record)
        if record.type is RecordType.STARTED:
            fields["execution_id"] = fields.pop("command_id")
        elif record.type is RecordType.ERROR:
            fields |= fields.pop("error")
        elif record.type is RecordType.EXIT:
            exit_code = fields.pop("exit_code")
            fields |= {"type": "end", "state": state_of(fields["state"], exit_code)}
        text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        return Item(record.seq, text.encode())


def state_of(state: str, exit_code: int | None) -> str:
    """Return the state of an execution from that of its row."""
    if state != "exited":
        return state
    return "error" if exit_code else "succeeded"
