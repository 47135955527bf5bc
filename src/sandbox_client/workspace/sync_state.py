"""The last common state of a directory and its sandbox, kept in a private file on this machine."""

import asyncio
import fcntl
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandbox_client.workspace.endpoint.entries import Change, Entry, dump_entries, load_entries

_KEYS = {"base": "base", "local": "near", "remote": "far"}  # attribute: key in the file


@dataclass
class SyncState:
    """`base`: entries when both sides were last equal; `local`, `remote`: the last scan of each side."""

    file: Path
    sandbox_id: str
    base: dict[str, Entry] = field(default_factory=dict)
    local: dict[str, Entry] = field(default_factory=dict)
    remote: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path, sandbox_id: str) -> "SyncState":
        """Load the file; one of another sandbox or a damaged one counts as empty."""
        try:
            saved = json.loads(file.read_text())
            if saved["sandbox_id"] == sandbox_id:
                entries = {name: load_entries(saved[key]) for name, key in _KEYS.items()}
                return cls(file, sandbox_id, **entries)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass
        return cls(file, sandbox_id)

    def known(self, side: Mapping[str, Entry]) -> dict[str, Entry]:
        """Combine the last scan of a side with the changes synchronized since."""
        carried = {path: replace(entry, stamp="") for path, entry in self.base.items()}
        return {**carried, **side}

    def set_common(self, path: str, entry: Entry | None) -> None:
        """Record that both sides have the same entry at this path."""
        if entry is None:
            self.base.pop(path, None)
        else:
            self.base[path] = entry

    def record(self, done: Iterable[Change]) -> None:
        """Record synchronized changes; the copy of a conflict exists on the local side only."""
        for change in done:
            if not change.source:
                self.set_common(change.path, change.after)

    def save(self) -> None:
        saved = {key: dump_entries(getattr(self, name)) for name, key in _KEYS.items()}
        descriptor, name = tempfile.mkstemp(dir=self.file.parent)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"sandbox_id": self.sandbox_id, **saved}, file)
        Path(name).replace(self.file)


@asynccontextmanager
async def locked_sync_state(file: Path, sandbox_id: str) -> AsyncIterator[SyncState]:
    """Load the state and hold its lock; other processes on this machine wait."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield SyncState.read(file, sandbox_id)
