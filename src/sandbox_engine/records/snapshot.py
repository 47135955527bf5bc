from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from sandbox_engine.images.image import Image
from sandbox_engine.records.catalog import Template
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.records.template_names import DEFAULT_TAG
from sandbox_engine.system.ids import new_id


class SnapshotState(StrEnum):
    """State of a snapshot; unfinished ones are removed at start."""

    TAKING = "taking"
    READY = "ready"


class SnapshotRecord(BaseModel):
    """A copy of a sandbox's disk with the settings of its sandboxes.

    `base` is the snapshot below this one. Unlisted snapshots are kept while sandboxes use them.
    `unwritten_since` is the boot ID of the machine until the copy is flushed to the disk.
    """

    id: str
    state: SnapshotState = SnapshotState.TAKING
    listed: bool
    sandbox_id: str
    name: str = ""
    tag: str = DEFAULT_TAG
    created_at: datetime
    unwritten_since: str | None = None
    base: str | None
    layers: tuple[Path, ...]
    envs: dict[str, str]
    user: str
    workdir: str
    start_command: str
    ready_command: str
    cpu_count: int
    memory_mb: int

    @classmethod
    def of(cls, sandbox: SandboxRecord, *, name: str = "", tag: str, listed: bool) -> Self:
        """Create the record of a snapshot of this sandbox."""
        return cls(
            id=new_id(),
            listed=listed,
            sandbox_id=sandbox.id,
            name=name,
            tag=tag,
            created_at=datetime.now(UTC),
            base=sandbox.base,
            layers=sandbox.layers,
            envs=sandbox.template_envs | sandbox.envs,
            user=sandbox.user,
            workdir=sandbox.workdir,
            start_command=sandbox.start_command,
            ready_command=sandbox.ready_command,
            cpu_count=sandbox.resources.cpu_count,
            memory_mb=sandbox.resources.memory_mb,
        )

    @property
    def reference(self) -> str:
        """The name by which sandboxes are created from it."""
        return f"{self.name or self.id}:{self.tag}"

    def matches(self, name: str, tag: str | None) -> bool:
        """Return whether this name or id, and tag if given, refer to the snapshot."""
        return name in (self.id, self.name) and (tag or DEFAULT_TAG) == self.tag

    def template(self) -> Template:
        """Return the template for new sandboxes."""
        return Template(
            id=self.id,
            name=self.name or self.id,
            image=Image(self.layers, self.envs, self.user, self.workdir),
            start_command=self.start_command,
            ready_command=self.ready_command,
            cpu_count=self.cpu_count,
            memory_mb=self.memory_mb,
            base=self.id,
        )
