import asyncio
import select
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import repeat
from pathlib import Path
from typing import Protocol

from sandbox_engine.container import cgroups
from sandbox_engine.container.cgroups import Cgroup
from sandbox_engine.system.errors import EngineError

_LONGEST_FREEZE = timedelta(seconds=30)
_LOOK_AGAIN_MS = 1000

# cgroup v1 sends no notification. Nearly always the freeze is immediate; a process in the middle of
# a fork or a disk access is waited for.
_PAUSES_MS = (*repeat(0, 20), *repeat(1, 10), *repeat(5, 10), *repeat(20, 10))
_THAW_MS = 10


class FreezeFailed(EngineError):
    """The kernel did not freeze or thaw the sandbox's processes."""

    code = "freeze_failed"


class Freezer(Protocol):
    """Freezes and thaws all processes of a control group."""

    async def freeze(self) -> None:
        """Freeze all processes; on failure none stays frozen."""

    def thaw(self) -> None:
        """Thaw all processes."""

    def is_frozen(self) -> bool:
        """Return whether all processes are frozen."""


def freezer_of(cgroup: Cgroup) -> Freezer:
    """Return the freezer of this machine's cgroup version."""
    kind = FreezerV2 if cgroups.is_unified() else FreezerV1
    return kind(cgroup.directory("freezer"))


@dataclass(frozen=True)
class FreezerV1:
    directory: Path

    async def freeze(self) -> None:
        async with _frozen_in_time(self):
            while not await self._attempt():
                self._write("THAWED")  # lets a process that hangs half-way, as in a fork, finish
                await asyncio.sleep(_THAW_MS / 1000)

    async def _attempt(self) -> bool:
        for pause in _PAUSES_MS:
            self._write("FROZEN")  # repeated: a process that joins during the freeze keeps running
            if self.is_frozen():
                return True
            await asyncio.sleep(pause / 1000)
        return False

    def thaw(self) -> None:
        with _reported():
            self._write("THAWED")

    def is_frozen(self) -> bool:
        return self._state.read_text().strip() == "FROZEN"

    def _write(self, state: str) -> None:
        self._state.write_text(state)

    @property
    def _state(self) -> Path:
        return self.directory / "freezer.state"


@dataclass(frozen=True)
class FreezerV2:
    directory: Path

    async def freeze(self) -> None:
        async with _frozen_in_time(self):
            (self.directory / "cgroup.freeze").write_text("1")
            with self._events.open() as events:
                changes = select.poll()
                changes.register(events, select.POLLPRI)
                while not self.is_frozen():
                    events.seek(0)
                    events.read()  # only changes after a read are notified
                    if not self.is_frozen():
                        await asyncio.to_thread(changes.poll, _LOOK_AGAIN_MS)

    def thaw(self) -> None:
        with _reported():
            (self.directory / "cgroup.freeze").write_text("0")

    def is_frozen(self) -> bool:
        return "frozen 1" in self._events.read_text().splitlines()

    @property
    def _events(self) -> Path:
        return self.directory / "cgroup.events"


@asynccontextmanager
async def _frozen_in_time(freezer: Freezer) -> AsyncIterator[None]:
    try:
        with _reported():
            async with asyncio.timeout(_LONGEST_FREEZE.total_seconds()):
                yield
    except BaseException:
        with suppress(FreezeFailed):
            freezer.thaw()
        raise


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise FreezeFailed("its processes could not be stopped in time") from error
    except OSError as error:
        raise FreezeFailed(f"the kernel refused: {error}") from error
