from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_engine.records.catalog import Template
from sandbox_engine.records.snapshot import SnapshotRecord, SnapshotState
from sandbox_engine.records.template_names import Reference
from sandbox_engine.system.errors import InvalidRequest
from sandbox_engine.system.json_store import JsonStore


class SnapshotStore(JsonStore[SnapshotRecord]):
    """Directories of snapshots, each with a record and a disk image; tracks their users."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SnapshotRecord)
        self.records = {record.id: record for record in self.load_all()}
        self._pinned: list[str] = []

    def image(self, snapshot_id: str) -> Path:
        return self.path(snapshot_id) / "disk.img"

    def listed(self) -> list[SnapshotRecord]:
        """List the snapshots that were requested and not deleted, newest first."""
        ready = (record for record in self.records.values() if record.state is SnapshotState.READY)
        shown = (record for record in ready if record.listed)
        return sorted(shown, key=lambda record: (record.created_at, record.id), reverse=True)

    def find(self, reference: str) -> SnapshotRecord | None:
        """Find a snapshot by ID or name, optionally with `:tag`."""
        try:
            wanted = Reference.parse(reference)
        except InvalidRequest:
            return None
        found = (record for record in self.listed() if record.matches(wanted.name, wanted.tag))
        return next(found, None)

    def find_template(self, reference: str) -> Template | None:
        """Find the template of a snapshot."""
        found = self.find(reference)
        return None if found is None else found.template()

    def chain(self, base: str | None) -> list[SnapshotRecord]:
        """List the snapshots below a sandbox created from `base`, lowest first.

        Raises KeyError if one is missing.
        """
        found: list[SnapshotRecord] = []
        while base is not None:
            found.insert(0, self.records[base])
            base = found[0].base
        return found

    @contextmanager
    def pinned(self, snapshot_id: str) -> Iterator[None]:
        """Keep a snapshot that no sandbox uses yet."""
        self._pinned.append(snapshot_id)
        try:
            yield
        finally:
            self._pinned.remove(snapshot_id)

    def unneeded(self, bases: Iterable[str | None]) -> list[SnapshotRecord]:
        """List unlisted snapshots that none of the bases needs."""
        needed = {record.id for record in self.records.values() if record.listed}
        needed |= {*filter(None, bases), *self._pinned}
        kept = {below.id for base in needed & set(self.records) for below in self.chain(base)}
        return [record for record in self.records.values() if record.id not in kept]
