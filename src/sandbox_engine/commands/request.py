import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from sandbox_engine.rootfs.accounts import Account


class TerminalSize(NamedTuple):
    rows: int
    cols: int


@dataclass(frozen=True)
class CommandRequest:
    """A requested command with its resolved user and directory.

    Commands with `is_noted` appear in the sandbox's journal.
    """

    cmd: str
    args: tuple[str, ...]
    envs: Mapping[str, str]
    cwd: str | None
    tag: str | None
    terminal: TerminalSize | None
    stdin: bool
    account: Account
    workdir: str
    environment: Mapping[str, str]
    is_noted: bool = True

    @property
    def argv(self) -> tuple[str, ...]:
        return (self.cmd, *self.args)


@dataclass(frozen=True)
class CommandRecord:
    """State of a command that an engine needs to adopt it after a restart."""

    request: CommandRequest
    started_at: datetime
    deadline: datetime | None
    oom_kills: int


_RECORD = TypeAdapter(CommandRecord)


@dataclass(frozen=True)
class CommandFiles:
    """Files of one command in the run directory, which is in memory and readable by root only."""

    directory: Path
    key: str

    @property
    def process(self) -> Path:
        return self.directory / f"{self.key}.process"

    @property
    def pid_file(self) -> Path:
        return self.directory / f"{self.key}.pid"

    @property
    def console_socket(self) -> Path:
        return self.directory / f"{self.key}.tty"

    @property
    def _record(self) -> Path:
        return self.directory / f"{self.key}.json"

    def write(self, record: CommandRecord, process: Mapping[str, Any]) -> None:
        """Write the record, and the process in the format of the OCI runtime."""
        for path, text in (
            (self._record, _RECORD.dump_json(record)),
            (self.process, _json(process)),
        ):
            path.touch(mode=0o600)
            path.write_bytes(text)

    def read(self) -> CommandRecord | None:
        """Read the record."""
        with suppress(FileNotFoundError, ValidationError):
            return _RECORD.validate_json(self._record.read_bytes())
        return None

    def remove(self) -> None:
        self._record.unlink(missing_ok=True)
        self.process.unlink(missing_ok=True)


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()
