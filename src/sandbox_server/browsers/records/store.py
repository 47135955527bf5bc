import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Select, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import BrowserRecord, BrowserSession
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import BrowserSessionNotFound
from sandbox_server.domain.ids import new_id
from sandbox_server.vault import Vault

MOST_PAGES = 1000
"""Pages of a session beyond this many share the last number."""


class RecordKind(StrEnum):
    MESSAGES = "messages"  # CDP messages of drivers
    ENTRIES = "entries"  # console, network and errors of pages
    FRAMES = "frames"  # pictures of pages


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """A part of a log or of a recording."""

    id: str
    page: int | None
    first_ms: int
    last_ms: int
    content: bytes


@dataclass(frozen=True, kw_only=True)
class RecordedSpan:
    """When a page was recorded."""

    page: int
    first_ms: int
    last_ms: int


class RecordStore:
    """Logs and recordings of sessions, encrypted in the database.

    Of what exceeds the limit of its kind, the beginning and the end are kept.
    """

    def __init__(self, sessions: Sessions, vault: Vault, limits: Mapping[RecordKind, int]) -> None:
        self._sessions = sessions
        self._vault = vault
        self._limits = limits

    def keeps(self, kind: RecordKind) -> bool:
        return self._limits[kind] > 0

    async def append(
        self,
        session_id: str,
        kind: RecordKind,
        content: bytes,
        *,
        first_ms: int,
        last_ms: int,
        page: int | None = None,
    ) -> None:
        """Store the next part. Parts in the middle are removed when there are too many bytes."""
        record_id = new_id()
        sealed = await asyncio.to_thread(self._vault.encrypt, content, context=_context(record_id))
        row = BrowserRecord(
            id=record_id,
            session_id=session_id,
            kind=kind.value,
            page=page,
            size=len(sealed),
            first_ms=first_ms,
            last_ms=last_ms,
            content_sealed=sealed,
        )
        async with self._sessions.begin() as session:
            session.add(row)
            await session.flush()
            await _remove_middle(session, session_id, kind, limit=self._limits[kind])

    async def list_after(
        self,
        session_id: str,
        kind: RecordKind,
        *,
        page: int | None = None,
        start: str = "",
        limit: int | None = None,
    ) -> Sequence[StoredRecord]:
        """List parts in order, from the one with the id `start`."""
        query = _of(session_id, kind).where(BrowserRecord.id >= start)
        if page is not None:
            query = query.where(BrowserRecord.page == page)
        query = query.order_by(BrowserRecord.id).limit(limit)
        async with without_transaction(self._sessions) as session:
            rows = (await session.scalars(query)).all()
        return await asyncio.to_thread(lambda: [self._open(row) for row in rows])

    async def list_spans(self, session_id: str) -> Sequence[RecordedSpan]:
        """List the pages that were recorded."""
        spans = (
            select(
                BrowserRecord.page,
                func.min(BrowserRecord.first_ms),
                func.max(BrowserRecord.last_ms),
            )
            .where(BrowserRecord.session_id == session_id, BrowserRecord.kind == RecordKind.FRAMES)
            .group_by(BrowserRecord.page)
            .order_by(BrowserRecord.page)
        )
        async with without_transaction(self._sessions) as session:
            found = (await session.execute(spans)).all()
        return [
            RecordedSpan(page=page or 0, first_ms=first, last_ms=last)
            for page, first, last in found
        ]

    async def read_last(self, session_id: str, *, page: int) -> bytes:
        """Read the last pictures of a page that was recorded."""
        last = _of(session_id, RecordKind.FRAMES).where(BrowserRecord.page == page)
        return await self._read_one(last.order_by(BrowserRecord.id.desc()))

    async def read_at(self, session_id: str, *, page: int, at_ms: int) -> bytes:
        """Read the pictures of a recorded page around an instant: the last ones that begin before it."""
        own = _of(session_id, RecordKind.FRAMES).where(BrowserRecord.page == page)
        begun = BrowserRecord.first_ms <= at_ms
        return await self._read_one(
            own.order_by(begun.desc(), func.abs(BrowserRecord.first_ms - at_ms))
        )

    async def _read_one(self, query: Select[BrowserRecord]) -> bytes:
        async with without_transaction(self._sessions) as session:
            row = (await session.scalars(query.limit(1))).one()
        return self._open(row).content

    async def number_page(self, session_id: str, target_id: str) -> int:
        """Return the number of a page in its session, which the first call decides."""
        async with self._sessions.begin() as session:
            row, _ = await lock_session(session, session_id)
            if target_id not in row.pages and len(row.pages) < MOST_PAGES:
                row.pages = {**row.pages, target_id: len(row.pages)}
            number: int = row.pages.get(target_id, MOST_PAGES)
        return number

    def _open(self, row: BrowserRecord) -> StoredRecord:
        return StoredRecord(
            id=row.id,
            page=row.page,
            first_ms=row.first_ms,
            last_ms=row.last_ms,
            content=self._vault.decrypt(row.content_sealed, context=_context(row.id)),
        )


async def lock_session(session: AsyncSession, session_id: str) -> tuple[BrowserSession, datetime]:
    """Lock the row of a session until the transaction ends; returns it with the database's clock."""
    own = select(BrowserSession, func.clock_timestamp()).where(BrowserSession.id == session_id)
    found = (await session.execute(own.with_for_update())).one_or_none()
    if found is None:
        raise BrowserSessionNotFound(session_id)
    return found[0], found[1]


def _of(session_id: str, kind: RecordKind) -> Select[BrowserRecord]:
    return select(BrowserRecord).where(
        BrowserRecord.session_id == session_id, BrowserRecord.kind == kind
    )


async def _remove_middle(
    session: AsyncSession, session_id: str, kind: RecordKind, *, limit: int
) -> None:
    own = (BrowserRecord.session_id == session_id, BrowserRecord.kind == kind)
    if (await session.scalar(select(func.sum(BrowserRecord.size)).where(*own)) or 0) <= limit:
        return
    size = BrowserRecord.size
    before = func.sum(size).over(order_by=BrowserRecord.id.asc()) - size
    behind = func.sum(size).over(order_by=BrowserRecord.id.desc()) - size
    ranked = (
        select(BrowserRecord.id, before.label("before"), behind.label("behind"))
        .where(*own)
        .subquery()
    )
    kept = or_(ranked.c.before < limit // 2, ranked.c.behind < limit // 2)
    middle = select(ranked.c.id).where(~kept)
    await session.execute(delete(BrowserRecord).where(BrowserRecord.id.in_(middle)))


def _context(record_id: str) -> str:
    return f"browser_records.content/{record_id}"
