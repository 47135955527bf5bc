import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime
from http import HTTPMethod
from typing import Any
from weakref import WeakValueDictionary

from sandbox_server.db.models import Desktop, Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.desktops.control import DesktopControl
from sandbox_server.desktops.guest import DesktopGuest
from sandbox_server.desktops.recording_copies import RecordingCopies
from sandbox_server.desktops.repository import DesktopRepository, is_held
from sandbox_server.desktops.views import GuestState, read_guest
from sandbox_server.domain.computers.desktops import DesktopHolder, DesktopSettings
from sandbox_server.domain.errors import DesktopNotRunning, DesktopRefused, SandboxError
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import ENDED, State
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.sandbox_access import SandboxAccess, UsableSandbox

log = logging.getLogger(__name__)

_MOST_ROUNDS = 5
_MOST_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a desktop should be like, by the database."""

    row: Sandbox
    desktop: Desktop | None
    now: datetime

    @property
    def settings(self) -> DesktopSettings:
        return DesktopSettings.of(self.row.desktop)

    @property
    def is_held(self) -> bool:
        return is_held(self.desktop, self.now)

    @property
    def is_lapsed(self) -> bool:
        """Whether the time of a person's control is over, which nothing has recorded yet."""
        desktop = self.desktop
        return desktop is not None and desktop.holder == DesktopHolder.PERSON and not self.is_held

    @property
    def is_applied(self) -> bool:
        if self.desktop is None:
            return self.row.desktop is None
        return (
            self.desktop.applied_version == self.desktop.version
            and self.desktop.applied_run == self.row.started_at
        )


class DesktopConfiguration:
    """Applies the settings and the holder of desktops in running sandboxes, once per change and per run of the sandbox.

    Every use of a desktop makes sure of that first, and a job does it without a use.
    """

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        access: SandboxAccess,
        guest: DesktopGuest,
        control: DesktopControl,
        copies: RecordingCopies,
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._access = access
        self._guest = guest
        self._control = control
        self._copies = copies
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def work(self, job: LeasedJob) -> datetime | None:
        """Handle the job of a sandbox's desktop; returns when the control of a person ends."""
        async with without_transaction(self._sessions) as session:
            found = await SandboxRepository(session).find(job.subject)
        if found is None or found[0].state in ENDED:
            return None
        row = found[0]
        until = await self._control.lapse(row)
        if row.state is State.RUNNING:
            assert row.backend is not None
            self._backends[row.backend].enter()
            try:
                used = self._access.usable(row)
                wanted = await self.ensure(used)
                if wanted.settings.fps is not None:
                    await self._keep_recording(used)
                    copy_at = wanted.now + self._copies.every
                    return copy_at if until is None else min(until, copy_at)
            except (DesktopNotRunning, DesktopRefused) as error:
                if job.attempts < _MOST_ATTEMPTS:
                    raise
                log.warning("desktop not configured sandbox_id=%s error=%s", row.id, error)
        return until

    async def _keep_recording(self, used: UsableSandbox) -> None:
        """Copy what is new of the recording, and start another if it has ended by itself."""
        try:
            await self._copies.copy(used)
            async with self._locks.setdefault(used.row.id, asyncio.Lock()):
                await self._restart_recording(used)
        except SandboxError as error:
            log.warning("recording not copied sandbox_id=%s error=%s", used.row.id, error)

    async def _restart_recording(self, used: UsableSandbox) -> None:
        wanted = await self.read(used.row.id)
        state = read_guest(GuestState, await self._guest.call(used, HTTPMethod.GET, "/state"))
        if not wanted.is_applied or wanted.settings.fps is None or state.recording is not None:
            return
        await self._record(used, wanted.settings.fps, state)
        # Another server may have stopped the recording since the settings were read.
        if (await self.read(used.row.id)).settings.fps is None:
            await self._guest.call(used, HTTPMethod.DELETE, "/recordings/current")

    async def read(self, sandbox_id: str) -> Wanted:
        """Read what the desktop of a sandbox should be like."""
        async with without_transaction(self._sessions) as session:
            row, desktop, now = await DesktopRepository(session).read(sandbox_id)
        return Wanted(row=row, desktop=desktop, now=now)

    async def ensure(self, used: UsableSandbox) -> Wanted:
        """Apply what has not been applied in this run of the sandbox."""
        wanted = await self.read(used.row.id)
        if wanted.is_applied and not wanted.is_lapsed:
            return wanted
        # One request at a time: two would start two recordings.
        async with self._locks.setdefault(used.row.id, asyncio.Lock()):
            return await self._ensure(used)

    async def _ensure(self, used: UsableSandbox) -> Wanted:
        for _ in range(_MOST_ROUNDS):
            wanted = await self.read(used.row.id)
            if wanted.is_lapsed:
                await self._control.lapse(used.row)
            elif wanted.is_applied:
                break
            else:
                await self._apply(used, wanted)
        return wanted

    async def _apply(self, used: UsableSandbox, wanted: Wanted) -> None:
        """Apply a version; a later version that was committed meanwhile is applied by the next round."""
        settings = wanted.settings
        state = read_guest(GuestState, await self._guest.call(used, HTTPMethod.GET, "/state"))
        if display := _display(settings, state):
            await self._guest.call(used, HTTPMethod.PUT, "/display", display)
        holder = DesktopHolder.PERSON if wanted.is_held else DesktopHolder.AGENT
        if state.control != holder:
            await self._guest.call(used, HTTPMethod.PUT, "/control", {"holder": holder})
        if wanted.row.desktop is not None:
            await self._record(used, settings.fps, state)
        async with self._sessions.begin() as session:
            repository = DesktopRepository(session)
            version = 0 if wanted.desktop is None else wanted.desktop.version
            await repository.note_applied(used.row.id, version=version, run=wanted.row.started_at)

    async def _record(self, used: UsableSandbox, fps: int | None, state: GuestState) -> None:
        """Start or stop the recording, unless it is as requested."""
        current = None if state.recording is None else state.recording.fps
        if current == fps:
            return
        if current is not None:
            await self._guest.call(used, HTTPMethod.DELETE, "/recordings/current")
            await self._copies.copy(used)
        if fps is not None:
            await self._guest.call(used, HTTPMethod.POST, "/recordings", {"fps": fps})


def _display(settings: DesktopSettings, state: GuestState) -> dict[str, Any]:
    """Build the request that makes the display as requested; empty if it is."""
    wanted = {
        "width": settings.width or state.resolution.width,
        "height": settings.height or state.resolution.height,
        "dpi": settings.dpi or state.dpi,
    }
    current = {**state.resolution.model_dump(), "dpi": state.dpi}
    return {} if wanted == current else wanted
