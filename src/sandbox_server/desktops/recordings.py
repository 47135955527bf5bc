import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sandbox_client.models import DesktopRecordingState
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.desktops.configuration import DesktopConfiguration
from sandbox_server.desktops.fragments import complete_head
from sandbox_server.desktops.frames import take_frame
from sandbox_server.desktops.recording_copies import RecordingCopies, part_context
from sandbox_server.desktops.recording_repository import (
    KeptRecording,
    RecordingRepository,
    StoredPart,
)
from sandbox_server.desktops.service import Desktops
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import (
    DesktopNotRunning,
    DesktopRecordingNotFound,
    DesktopRefused,
    SandboxError,
)
from sandbox_server.domain.state import State
from sandbox_server.sandboxes.service import WAIT, SandboxController
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)

_MOST_TO_DECODE = 128 * 2**20


@dataclass(frozen=True, kw_only=True)
class Video:
    """A recording as an MP4: its head, completed, and its parts."""

    head: bytes
    parts: Sequence[StoredPart]

    @property
    def size(self) -> int:
        return len(self.head) + sum(part.size for part in self.parts)


class DesktopRecordings:
    """Recordings of desktops. The server keeps them, so they outlive their sandbox."""

    def __init__(
        self,
        sessions: Sessions,
        vault: Vault,
        controller: SandboxController,
        configuration: DesktopConfiguration,
        desktops: Desktops,
        copies: RecordingCopies,
    ) -> None:
        self._sessions = sessions
        self._vault = vault
        self._controller = controller
        self._configuration = configuration
        self._desktops = desktops
        self._copies = copies

    async def start(
        self, caller: Caller, sandbox_id: str, *, fps: int, wait: timedelta = WAIT
    ) -> DesktopRecordingState:
        """Start recording; returns the current recording if there is one with these frames per second."""
        await self._controller.use(caller, sandbox_id, wait=wait)
        state = await self._desktops.update(caller, sandbox_id, {"fps": fps})
        if state.live is None or state.live.recording is None:
            raise DesktopNotRunning
        return state.live.recording

    async def stop(self, caller: Caller, sandbox_id: str) -> None:
        """Stop recording; no effect if nothing is recorded."""
        await self._desktops.update(caller, sandbox_id, {"fps": None})

    async def list_all(self, caller: Caller, sandbox_id: str) -> Sequence[KeptRecording]:
        """List recordings, oldest first; the one that goes on as far as it was copied."""
        await self._refresh(caller, sandbox_id)
        async with without_transaction(self._sessions) as session:
            return await RecordingRepository(session).list_all(sandbox_id)

    async def open(self, caller: Caller, sandbox_id: str, recording_id: str) -> Video:
        """Open a recording as far as it was copied."""
        recording, parts = await self._find(caller, sandbox_id, recording_id)
        head = await self._read(parts[0])
        timescale = recording.row.timescale
        completed = await asyncio.to_thread(complete_head, head, timescale, parts[1:])
        return Video(head=completed, parts=parts[1:])

    async def read(self, video: Video, start: int, end: int) -> AsyncIterator[bytes]:
        """Read a range of bytes of the MP4."""
        at = 0
        if start < len(video.head):
            yield video.head[start:end]
        at = len(video.head)
        for part in video.parts:
            if at < end and start < at + part.size:
                content = await self._read(part)
                yield content[max(0, start - at) : end - at]
            at += part.size

    async def frame(
        self, caller: Caller, sandbox_id: str, recording_id: str, *, at_s: float
    ) -> bytes:
        """Return the picture that was shown at a second of the recording, as JPEG."""
        recording, parts = await self._find(caller, sandbox_id, recording_id)
        if at_s > recording.duration_s:
            raise _no_picture(recording, at_s)
        video, offset_s = await self._around(recording, parts, at_s)
        frame = await take_frame(video, offset_s)
        if not frame:
            raise _no_picture(recording, at_s)
        return frame

    async def delete(self, caller: Caller, sandbox_id: str, recording_id: str) -> None:
        """Delete a recording that has ended."""
        await self._refresh(caller, sandbox_id)
        async with self._sessions.begin() as session:
            repository = RecordingRepository(session)
            found = await repository.get(sandbox_id, recording_id)
            if found.row.ended_at is None and not found.is_sandbox_gone:
                raise DesktopRefused("The recording goes on. Stop it first.")
            await repository.remove(sandbox_id, recording_id)

    async def _refresh(self, caller: Caller, sandbox_id: str) -> None:
        """Copy what is new; a desktop that does not answer is not needed for what was copied before."""
        row = await self._controller.get(caller, sandbox_id)
        if row.desktop is None or row.state is not State.RUNNING:
            return
        try:
            used = self._controller.reach_into(row)
            await self._configuration.ensure(used)
            await self._copies.copy(used)
        except SandboxError as error:
            log.warning("recordings not copied sandbox_id=%s error=%s", sandbox_id, error)

    async def _find(
        self, caller: Caller, sandbox_id: str, recording_id: str
    ) -> tuple[KeptRecording, Sequence[StoredPart]]:
        row = await self._controller.get(caller, sandbox_id)
        async with without_transaction(self._sessions) as session:
            repository = RecordingRepository(session)
            recording = await repository.get(row.id, recording_id)
            parts = await repository.list_parts(row.id, recording_id)
        if not parts:
            raise DesktopRecordingNotFound(recording_id)
        return recording, parts

    async def _around(
        self, recording: KeptRecording, parts: Sequence[StoredPart], at_s: float
    ) -> tuple[bytes, float]:
        """Read the part that was shown at a second, from its key frame on; returns it with the second in it."""
        head, *rest = parts
        at = rest[0].begins + at_s * recording.row.timescale
        shown = max((n for n, part in enumerate(rest) if part.begins <= at), default=0)
        first = max((n for n in range(shown + 1) if rest[n].is_key), default=0)
        needed = rest[first : shown + 1]
        if sum(part.size for part in needed) > _MOST_TO_DECODE:
            raise DesktopRefused("The recording has too few key frames.")
        content = b"".join([await self._read(part) for part in (head, *needed)])
        return content, (at - rest[first].begins) / recording.row.timescale

    async def _read(self, part: StoredPart) -> bytes:
        async with without_transaction(self._sessions) as session:
            sealed = await RecordingRepository(session).read_part(part.id)
        if sealed is None:
            raise DesktopRecordingNotFound(part.id, detail="The recording has been deleted.")
        return await asyncio.to_thread(self._vault.decrypt, sealed, context=part_context(part.id))


def _no_picture(recording: KeptRecording, at_s: float) -> DesktopRecordingNotFound:
    return DesktopRecordingNotFound(
        recording.row.id,
        detail=f"The recording is {recording.duration_s:.1f} s long and has no picture at {at_s:g} s.",
    )
