"""Copies recordings from sandboxes into the database, piece by piece while they grow."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPMethod
from typing import Annotated
from weakref import WeakValueDictionary

from pydantic import BaseModel, ConfigDict, Field

from sandbox_server.db.models import DesktopRecording, DesktopRecordingPart, Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.desktops.fragments import Cut, InvalidRecording, cut, read_timescale
from sandbox_server.desktops.guest import DesktopGuest
from sandbox_server.desktops.recording_repository import RecordingRepository
from sandbox_server.desktops.views import read_guest_list
from sandbox_server.domain.errors import (
    DesktopRecordingNotFound,
    DesktopRefused,
    SandboxError,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.sandboxes.sandbox_access import SandboxAccess, UsableSandbox
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)

_UNFINISHED = "not finished"
_MOST_RECORDINGS = 100
_LONGEST_REASON = 200
_KILL = "kill"
_LIMIT = timedelta(seconds=20)


@dataclass(frozen=True, kw_only=True)
class RecordingLimits:
    """Largest size of a sandbox's recordings, and interval between two copies."""

    most_bytes: int = 2**30
    every: timedelta = timedelta(minutes=1)


class _GuestRecording(BaseModel):
    """A recording as the service in the sandbox lists it."""

    model_config = ConfigDict(frozen=True)

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
    fps: Annotated[int, Field(ge=1, le=1000)]
    started_at: datetime
    width: Annotated[int, Field(ge=0, le=2**15)]
    height: Annotated[int, Field(ge=0, le=2**15)]
    end_reason: str


class RecordingCopies:
    """Copies what is new of a sandbox's recordings; the sandbox's own file is deleted when a recording is complete.

    The file only grows, and each piece is committed with the position behind it. So whatever is killed, the copy is a
    video of what was copied.
    """

    def __init__(
        self, sessions: Sessions, vault: Vault, guest: DesktopGuest, limits: RecordingLimits
    ) -> None:
        self._sessions = sessions
        self._vault = vault
        self._guest = guest
        self._limits = limits
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def every(self) -> timedelta:
        return self._limits.every

    async def copy(self, used: UsableSandbox) -> None:
        """Copy what is new of all recordings of a running sandbox."""
        async with self._locks.setdefault(used.row.id, asyncio.Lock()):
            answer = await self._guest.call(used, HTTPMethod.GET, "/recordings?current")
            for found in read_guest_list(_GuestRecording, answer)[:_MOST_RECORDINGS]:
                await self._copy(used, found)

    async def _copy(self, used: UsableSandbox, found: _GuestRecording) -> None:
        async with self._sessions.begin() as session:
            values = {"fps": found.fps, "width": found.width, "height": found.height}
            row = await RecordingRepository(session).find_or_add(
                used.row.id, found.id, started_at=found.started_at, **values
            )
        end_reason = None if found.end_reason == _UNFINISHED else found.end_reason
        if row.ended_at is None:
            try:
                end_reason = await self._copy_rest(used, row) or end_reason
            except InvalidRecording as error:
                end_reason = str(error)
            await self._note(row, end_reason)
        if found.end_reason != _UNFINISHED:
            await self._guest.call(used, HTTPMethod.DELETE, f"/recordings/{found.id}")

    async def _copy_rest(self, used: UsableSandbox, row: DesktopRecording) -> str | None:
        """Copy until the file has nothing new; returns why nothing more will be copied."""
        copied, has_head = row.copied, row.timescale > 0
        while True:
            path = f"/recordings/{row.id}/fragments?offset={copied}"
            content = (await self._guest.call(used, HTTPMethod.GET, path)).body
            piece = await asyncio.to_thread(cut, content)
            if not piece.consumed or not (has_head or piece.head):
                return None
            if not await self._append(row, copied, piece):
                return f"The recordings of a sandbox may have {self._limits.most_bytes >> 20} MiB."
            copied, has_head = copied + piece.consumed, True

    async def _append(self, row: DesktopRecording, copied: int, piece: Cut) -> bool:
        """Append a piece, unless another server has; returns whether it fits."""
        parts = await asyncio.to_thread(self._seal, row, piece)
        async with self._sessions.begin() as session:
            repository = RecordingRepository(session)
            locked = await repository.lock(row.sandbox_id, row.id)
            if locked.copied != copied or locked.ended_at is not None:
                return True
            if not locked.timescale:
                locked.timescale = read_timescale(piece.head)
            locked.copied = copied + piece.consumed
            await repository.add_parts(locked, parts)
            return await repository.make_room(
                row.sandbox_id, keep=row.id, most=self._limits.most_bytes
            )

    def _seal(self, row: DesktopRecording, piece: Cut) -> Sequence[DesktopRecordingPart]:
        pieces = [(piece.head, 0, 0, False)] if piece.head else []
        pieces += [(each.content, each.begins, each.lasts, each.is_key) for each in piece.parts]
        parts = []
        for content, begins, lasts, is_key in pieces:
            part_id = new_id()
            part = DesktopRecordingPart(
                id=part_id,
                sandbox_id=row.sandbox_id,
                recording_id=row.id,
                begins=begins,
                lasts=lasts,
                is_key=is_key,
                size=len(content),
                content_sealed=self._vault.encrypt(content, context=part_context(part_id)),
            )
            parts.append(part)
        return parts

    async def _note(self, row: DesktopRecording, end_reason: str | None) -> None:
        async with self._sessions.begin() as session:
            repository = RecordingRepository(session)
            await repository.note_copied(row.sandbox_id, row.id)
            if end_reason is not None:
                await repository.end(row.sandbox_id, row.id, end_reason[:_LONGEST_REASON])


def part_context(part_id: str) -> str:
    return f"desktop_recording_parts.content/{part_id}"


class RecordingKeeper:
    """Copies recordings before their sandbox is paused or deleted, for whatever reason.

    A desktop that does not answer delays that by seconds, and never prevents it.
    """

    def __init__(self, access: SandboxAccess, guest: DesktopGuest, copies: RecordingCopies) -> None:
        self._access = access
        self._guest = guest
        self._copies = copies

    async def save_before(self, row: Sandbox, act: str) -> None:
        if row.desktop is None or row.access_sealed is None:
            return
        used = self._access.usable(row)
        try:
            async with asyncio.timeout(_LIMIT.total_seconds()):
                if act == _KILL:
                    await self._stop(used)
                await self._copies.copy(used)
        except (SandboxError, TimeoutError) as error:
            log.warning("recordings not copied before %s error=%s", act, error)

    async def _stop(self, used: UsableSandbox) -> None:
        """End the recording, so that its last second is in the file."""
        try:
            await self._guest.call(used, HTTPMethod.DELETE, "/recordings/current")
        except (DesktopRefused, DesktopRecordingNotFound):
            return  # nothing is being recorded
