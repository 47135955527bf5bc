import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.browsers.records.frames import Frame, unpack_frames, unpack_url
from sandbox_server.browsers.records.store import RecordKind, RecordStore
from sandbox_server.browsers.records.videos import VideoFormat, make_video
from sandbox_server.db.models import BrowserSession
from sandbox_server.domain.errors import BrowserRecordingNotFound


@dataclass(frozen=True, kw_only=True)
class PageRecording:
    """The recording of a page: when, and the URL that it showed last."""

    page: int
    url: str
    first_ms: int
    last_ms: int


class SessionRecordings:
    """Reads the recordings of sessions, also of those that have ended."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    async def list_pages(self, row: BrowserSession) -> list[PageRecording]:
        """List the pages of which there are pictures."""
        return [
            PageRecording(
                page=span.page,
                url=unpack_url(await self._store.read_last(row.id, page=span.page)),
                first_ms=span.first_ms,
                last_ms=span.last_ms,
            )
            for span in await self._store.list_spans(row.id)
        ]

    async def read_frames(self, row: BrowserSession, page: int) -> Sequence[Frame]:
        """Read all pictures of a page."""
        parts = await self._store.list_after(row.id, RecordKind.FRAMES, page=page)
        if not parts:
            raise BrowserRecordingNotFound(f"{row.id}/{page}")
        return await asyncio.to_thread(
            lambda: [frame for part in parts for frame in unpack_frames(part.content)]
        )

    async def make_video(self, row: BrowserSession, page: int, kind: VideoFormat) -> bytes:
        """Make a video of all pictures of a page."""
        return await make_video(await self.read_frames(row, page), kind)

    async def read_frame(self, row: BrowserSession, page: int, *, at_s: float) -> bytes:
        """Read the picture that a page showed at a second of its recording."""
        spans = {each.page: each for each in await self._store.list_spans(row.id)}
        if page not in spans:
            raise BrowserRecordingNotFound(f"{row.id}/{page}")
        at_ms = spans[page].first_ms + round(at_s * 1000)
        part = await self._store.read_at(row.id, page=page, at_ms=at_ms)
        frames = unpack_frames(part)
        return next(
            (each.picture for each in reversed(frames) if each.at_ms <= at_ms), frames[0].picture
        )
