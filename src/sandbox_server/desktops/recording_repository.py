from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import DesktopRecording, DesktopRecordingPart, Sandbox
from sandbox_server.desktops.fragments import Part
from sandbox_server.domain.errors import DesktopRecordingNotFound
from sandbox_server.domain.state import ENDED

_now = func.clock_timestamp()


@dataclass(frozen=True, kw_only=True)
class StoredPart(Part):
    """A part without its content."""

    id: str


@dataclass(frozen=True, kw_only=True)
class KeptRecording:
    """A recording with the seconds that were copied, and whether more may follow."""

    row: DesktopRecording
    duration_s: float
    is_sandbox_gone: bool


class RecordingRepository:
    """Recordings of desktops, and the parts of their video."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_or_add(
        self, sandbox_id: str, recording_id: str, **values: Any
    ) -> DesktopRecording:
        added = insert(DesktopRecording).values(sandbox_id=sandbox_id, id=recording_id, **values)
        await self._session.execute(added.on_conflict_do_nothing())
        return await self._session.get_one(DesktopRecording, (sandbox_id, recording_id))

    async def lock(self, sandbox_id: str, recording_id: str) -> DesktopRecording:
        """Lock a recording; raises `DesktopRecordingNotFound`."""
        row = await self._session.get(
            DesktopRecording,
            (sandbox_id, recording_id),
            with_for_update=True,
            populate_existing=True,
        )
        if row is None:
            raise DesktopRecordingNotFound(recording_id)
        return row

    async def get(self, sandbox_id: str, recording_id: str) -> KeptRecording:
        for found in await self.list_all(sandbox_id, recording_id=recording_id):
            return found
        raise DesktopRecordingNotFound(recording_id)

    async def list_all(
        self, sandbox_id: str, *, recording_id: str | None = None
    ) -> Sequence[KeptRecording]:
        """List the recordings of a sandbox, oldest first."""
        part = DesktopRecordingPart
        of_it = and_(
            part.sandbox_id == DesktopRecording.sandbox_id,
            part.recording_id == DesktopRecording.id,
            part.part > 0,
        )
        ticks = select(func.max(part.begins + part.lasts) - func.min(part.begins)).where(of_it)
        query = (
            select(DesktopRecording, ticks.scalar_subquery(), Sandbox.state.in_(ENDED))
            .join(Sandbox, Sandbox.id == DesktopRecording.sandbox_id)
            .where(DesktopRecording.sandbox_id == sandbox_id)
            .order_by(DesktopRecording.started_at, DesktopRecording.id)
        )
        if recording_id is not None:
            query = query.where(DesktopRecording.id == recording_id)
        return [
            KeptRecording(
                row=row,
                duration_s=float(lasts or 0) / (row.timescale or 1),
                is_sandbox_gone=is_gone,
            )
            for row, lasts, is_gone in await self._session.execute(query)
        ]

    async def list_parts(self, sandbox_id: str, recording_id: str) -> Sequence[StoredPart]:
        """List the parts of a recording in their order; the first is its head."""
        part = DesktopRecordingPart
        query = select(part.id, part.begins, part.lasts, part.is_key, part.size)
        own = query.where(part.sandbox_id == sandbox_id, part.recording_id == recording_id)
        found = await self._session.execute(own.order_by(part.part))
        return [StoredPart(**row._asdict()) for row in found]

    async def read_part(self, part_id: str) -> bytes | None:
        """Read the encrypted content of a part; None if its recording was deleted meanwhile."""
        content: bytes | None = await self._session.scalar(
            select(DesktopRecordingPart.content_sealed).where(DesktopRecordingPart.id == part_id)
        )
        return content

    async def add_parts(self, row: DesktopRecording, parts: Sequence[DesktopRecordingPart]) -> None:
        """Append parts to a locked recording."""
        own = and_(
            DesktopRecordingPart.sandbox_id == row.sandbox_id,
            DesktopRecordingPart.recording_id == row.id,
        )
        last = await self._session.scalar(select(func.max(DesktopRecordingPart.part)).where(own))
        following = 0 if last is None else last + 1
        for number, part in enumerate(parts, following):
            part.part = number
            self._session.add(part)
            row.bytes += part.size
            await self._session.flush()

    async def note_copied(self, sandbox_id: str, recording_id: str) -> None:
        await self._set(sandbox_id, recording_id, copied_at=_now)

    async def end(self, sandbox_id: str, recording_id: str, reason: str) -> None:
        """Record the end of a recording, unless it has one."""
        await self._set(sandbox_id, recording_id, ended_at=_now, end_reason=reason)

    async def _set(self, sandbox_id: str, recording_id: str, **values: Any) -> None:
        own = update(DesktopRecording).where(
            DesktopRecording.sandbox_id == sandbox_id,
            DesktopRecording.id == recording_id,
            DesktopRecording.ended_at.is_(None),
        )
        await self._session.execute(own.values(**values))

    async def make_room(self, sandbox_id: str, *, keep: str, most: int) -> bool:
        """Delete the oldest ended recordings until those of the sandbox fit; False if they cannot."""
        kept = list(await self.list_all(sandbox_id))
        total = sum(each.row.bytes for each in kept)
        for each in kept:
            if total > most and each.row.id != keep and each.row.ended_at is not None:
                await self.remove(sandbox_id, each.row.id)
                total -= each.row.bytes
        return total <= most

    async def remove(self, sandbox_id: str, recording_id: str) -> None:
        await self._session.execute(
            delete(DesktopRecording).where(
                DesktopRecording.sandbox_id == sandbox_id, DesktopRecording.id == recording_id
            )
        )
