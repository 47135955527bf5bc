"""Recordings of the display as MP4, of bounded size."""

import asyncio
import json
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sandbox_tools.desktop.display import Display
from sandbox_tools.desktop.recorder import Recorder, RecorderUnavailable, finish_file, take_frame

MOST_BYTES = 512 << 20
_MOST_BYTES_OF_ALL = 2 << 30
_UNFINISHED = "not finished"


class RecordingConflict(Exception):
    """A recording runs already, none runs, or there is no room for another."""


class RecordingNotFound(Exception):
    """There is no such recording, or nothing was shown at that second."""


@dataclass(frozen=True)
class Recording:
    """A recording that has ended."""

    id: str
    fps: int
    started_at: str
    width: int
    height: int
    bytes: int
    duration_s: float
    end_reason: str


class Recordings:
    """Starts and ends recordings and keeps their files."""

    def __init__(self, display: Display, directory: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._display = display
        self._directory = directory
        self._most_bytes = most_bytes
        self._changing = asyncio.Lock()
        self._current: Recorder | None = None

    @property
    def current(self) -> dict[str, object] | None:
        """Describe the recording that runs now."""
        if self._current is None or not self._current.is_running:
            return None
        return self._current.describe()

    async def start(self, fps: int) -> dict[str, object]:
        async with self._changing:
            if self.current is not None:
                raise RecordingConflict("A recording runs already. Stop it first.")
            await self._finish()
            kept = sum(path.stat().st_size for path in self._directory.glob("rec_*"))
            if kept + self._most_bytes > _MOST_BYTES_OF_ALL:
                raise RecordingConflict(
                    f"The recordings occupy {kept >> 20} MiB. Delete some before you start another."
                )
            self._directory.mkdir(parents=True, exist_ok=True)
            recording = f"rec_{secrets.token_hex(8)}"
            recorder = Recorder(
                self._display,
                recording,
                self._fragments(recording),
                fps=fps,
                most_bytes=self._most_bytes,
            )
            await recorder.start()
            self._current = recorder
            self._describe(recorder, _UNFINISHED)
            return recorder.describe()

    async def stop(self) -> Recording:
        """End the current recording, or return the one that ended by itself since it was started."""
        async with self._changing:
            recording = await self._finish()
            if recording is None:
                raise RecordingConflict("No recording runs.")
            return recording

    async def open(self) -> None:
        """Finish recordings of a service that was killed."""
        async with self._changing:
            for recording in self._read_all():
                if recording.end_reason == _UNFINISHED:
                    with suppress(RecorderUnavailable, OSError):
                        await self._close_file(recording, "the desktop service ended")

    async def close(self) -> None:
        async with self._changing:
            await self._finish()

    def list_all(self, *, with_current: bool = False) -> list[Recording]:
        """List those that have ended, oldest first, and with `with_current` the one that runs."""
        return [one for one in self._read_all() if with_current or one.end_reason != _UNFINISHED]

    def _read_all(self) -> list[Recording]:
        found = []
        for path in self._directory.glob("rec_*.json"):
            with suppress(OSError, ValueError, TypeError):
                found.append(Recording(**json.loads(path.read_bytes())))
        return sorted(found, key=lambda recording: recording.started_at)

    def find_file(self, recording: str) -> Path:
        """Return the file of one that has ended."""
        self._find(recording)
        return self._directory / f"{recording}.mp4"

    def read_fragments(self, recording: str, offset: int, most: int) -> bytes:
        """Read a part of the file that grows while the recording runs."""
        known = any(one.id == recording for one in self._read_all())
        path = self._fragments(recording)
        if not known or not path.exists():
            raise _not_found(recording)
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(most)

    async def frame(self, recording: str, at: float) -> bytes:
        duration = self._find(recording).duration_s
        frame = await take_frame(self.find_file(recording), at) if at <= duration else b""
        if not frame:
            raise RecordingNotFound(
                f"The recording is {duration:.1f} s long and has no picture at {at:g} s."
            )
        return frame

    def delete(self, recording: str) -> None:
        path = self.find_file(recording)
        path.with_suffix(".json").unlink()
        path.unlink(missing_ok=True)
        self._fragments(recording).unlink(missing_ok=True)

    async def _finish(self) -> Recording | None:
        recorder, self._current = self._current, None
        if recorder is None:
            return None
        end_reason = await recorder.stop()
        return await self._close_file(self._describe(recorder, _UNFINISHED), end_reason)

    async def _close_file(self, recording: Recording, end_reason: str) -> Recording:
        path = self._directory / f"{recording.id}.mp4"
        duration = await finish_file(self._fragments(recording.id), path)
        finished = replace(
            recording,
            bytes=path.stat().st_size,
            duration_s=round(duration, 3),
            end_reason=end_reason,
        )
        self._write(finished)
        return finished

    def _describe(self, recorder: Recorder, end_reason: str) -> Recording:
        recording = Recording(
            id=recorder.id,
            fps=recorder.fps,
            started_at=recorder.started_at.isoformat(),
            width=recorder.size[0],
            height=recorder.size[1],
            bytes=0,
            duration_s=0,
            end_reason=end_reason,
        )
        self._write(recording)
        return recording

    def _write(self, recording: Recording) -> None:
        path = self._directory / f"{recording.id}.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(recording)))
        new.replace(path)

    def _find(self, recording: str) -> Recording:
        for one in self.list_all():
            if one.id == recording:
                return one
        raise _not_found(recording)

    def _fragments(self, recording: str) -> Path:
        return self._directory / f"{recording}.fragments"


def _not_found(recording: str) -> RecordingNotFound:
    return RecordingNotFound(f"There is no recording {recording[:40]!r}.")
