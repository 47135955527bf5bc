"""What a directory and a sandbox had in common last, in a file that only its owner reads."""

import asyncio
import fcntl
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandbox_client.workspace.endpoint.entries import Change, Entry, read_entries, tell_entries

_ENTRIES = ("base", "near", "far")


@dataclass
class Ledger:
    """What both sides had when they were the same, and what each looked like when it was looked at last."""

    file: Path
    sandbox_id: str
    base: dict[str, Entry] = field(default_factory=dict)
    near: dict[str, Entry] = field(default_factory=dict)
    far: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path, sandbox_id: str) -> "Ledger":
        """Read it; about another sandbox it says nothing, and nor does one that is broken."""
        try:
            told = json.loads(file.read_text())
            if told["sandbox_id"] == sandbox_id:
                return cls(
                    file, sandbox_id, **{part: read_entries(told[part]) for part in _ENTRIES}
                )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass
        return cls(file, sandbox_id)

    def known(self, side: Mapping[str, Entry]) -> dict[str, Entry]:
        """Combine the last scan of a side with what was carried over since."""
        carried = {path: replace(entry, stamp="") for path, entry in self.base.items()}
        return {**carried, **side}

    def agree(self, path: str, entry: Entry | None) -> None:
        """Note that both sides have the same there."""
        if entry is None:
            self.base.pop(path, None)
        else:
            self.base[path] = entry

    def settle(self, done: Iterable[Change]) -> None:
        """Note what was carried over; a copy beside ours is on this side alone as yet."""
        for change in done:
            if not change.source:
                self.agree(change.path, change.to)

    def save(self) -> None:
        told = {part: tell_entries(getattr(self, part)) for part in _ENTRIES}
        descriptor, name = tempfile.mkstemp(dir=self.file.parent)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"sandbox_id": self.sandbox_id, **told}, file)
        Path(name).replace(self.file)


@asynccontextmanager
async def sole_ledger(file: Path, sandbox_id: str) -> AsyncIterator[Ledger]:
    """Read it, and have others of this machine who would carry things over wait until we have."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield Ledger.read(file, sandbox_id)
