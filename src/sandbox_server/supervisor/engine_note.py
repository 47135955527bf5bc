"""The record of the engine on this machine, by which later guards find it."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sandbox_server.supervisor.process_handle import ProcessIdentity
from sandbox_server.supervisor.state_directory import write_private

HOST = "127.0.0.1"
NOTE = "engine.json"


@dataclass(frozen=True, kw_only=True)
class EngineAddress:
    """Address and API key of an engine."""

    port: int
    api_key: str = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def identity(self) -> str:
        """Identify this engine at any address, without revealing its key."""
        return hashlib.sha256(b"engine identity" + self.api_key.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class EngineNote:
    """Record of an engine for later guards."""

    pid: int
    began: str
    port: int
    log_at: int  # offset of its first message in the log
    ready: bool = False

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.began)


class EngineNoteFile:
    """The file with the record of the last engine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> EngineNote:
        return EngineNote(**json.loads(self._path.read_text()))

    def find(self) -> EngineNote | None:
        try:
            return self.read()
        except FileNotFoundError:
            return None

    def write(self, note: EngineNote) -> None:
        write_private(self._path, json.dumps(asdict(note)))
