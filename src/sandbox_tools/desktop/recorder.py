"""One recording: pictures of the display, when it changes, piped into ffmpeg."""

import asyncio
import shutil
import struct
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from sandbox_tools.desktop.display import Display
from sandbox_tools.desktop.images import Picture
from sandbox_tools.desktop.rfb import DisplayUnavailable, RfbConnection, connect

# A picture of an unchanged display costs next to nothing, and lets players and frames find their place.
_LEAST_PICTURES_EVERY = 1.0
_END_SECONDS = 20
_KEYFRAME_EVERY = 10
_LARGEST = (1920, 1088)
_FRAGMENTS = "+frag_keyframe+empty_moov+default_base_moof"
_FRAGMENT_MICROSECONDS = 1_000_000


class RecorderUnavailable(Exception):
    """This sandbox has no ffmpeg, or it fails."""


class Recorder:
    """Records until it is stopped, the display ends, or the file has its largest size."""

    def __init__(
        self, display: Display, recording: str, path: Path, *, fps: int, most_bytes: int
    ) -> None:
        self._display = display
        self._path = path
        self.fps = fps
        self._most_bytes = most_bytes
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[str] | None = None
        self.id = recording
        self.size = (0, 0)
        self.started_at = datetime.now(UTC)  # noqa: TID251 - told, not compared

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def describe(self) -> dict[str, object]:
        return {"id": self.id, "fps": self.fps, "started_at": self.started_at.isoformat()}

    async def start(self) -> None:
        """Start ffmpeg, and return when it has the first picture."""
        connection = await connect(self._display.socket)
        try:
            first = Picture(*await connection.capture())
            self._path.touch()
            self.size = _even(first.width, first.height)
            encoder = await _start_encoder(self.size, self._path)
        except BaseException:
            await connection.close()
            raise
        self._task = asyncio.create_task(self._record(connection, encoder))

    async def stop(self) -> str:
        """End the recording; returns why it ended."""
        self._stopped.set()
        assert self._task is not None
        return await self._task

    async def _record(self, connection: RfbConnection, encoder: asyncio.subprocess.Process) -> str:
        try:
            return await self._send_pictures(connection, encoder)
        except DisplayUnavailable:
            return "the display ended"
        except (BrokenPipeError, ConnectionResetError):
            return "ffmpeg ended"
        finally:
            await connection.close()
            await _end(encoder)

    async def _send_pictures(
        self, connection: RfbConnection, encoder: asyncio.subprocess.Process
    ) -> str:
        clock = asyncio.get_running_loop().time
        while not self._stopped.is_set():
            began = clock()
            await self._send_picture(connection, encoder)
            if self._path.stat().st_size >= self._most_bytes:
                return "the recording has its largest size"
            await self._wait(began + 1 / self.fps - clock())
            if not self._stopped.is_set():
                await connection.wait_for_change(_LEAST_PICTURES_EVERY)
        # The last picture lasts until now.
        await self._send_picture(connection, encoder)
        return "stopped"

    async def _send_picture(
        self, connection: RfbConnection, encoder: asyncio.subprocess.Process
    ) -> None:
        picture = Picture(*connection.copy_pixels())
        assert encoder.stdin is not None
        encoder.stdin.write(await asyncio.to_thread(picture.fit, *self.size))
        await encoder.stdin.drain()

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, seconds)):
                await self._stopped.wait()


def _even(width: int, height: int) -> tuple[int, int]:
    """Return the size of the video: even, as H.264 requires, and not larger than players like."""
    scale = min(1, _LARGEST[0] / width, _LARGEST[1] / height)
    return round(width * scale) & ~1, round(height * scale) & ~1


async def _start_encoder(size: tuple[int, int], path: Path) -> asyncio.subprocess.Process:
    if shutil.which("ffmpeg") is None:
        raise RecorderUnavailable("This template has no ffmpeg, which recordings need.")
    return await asyncio.create_subprocess_exec(
        *("ffmpeg", "-nostdin", "-loglevel", "error", "-y"),
        # Pictures have the time of their arrival, in milliseconds.
        *("-f", "rawvideo", "-pix_fmt", "bgr0", "-video_size", f"{size[0]}x{size[1]}"),
        *("-framerate", "1000", "-use_wallclock_as_timestamps", "1", "-i", "pipe:0"),
        *("-fps_mode", "vfr", "-c:v", "libx264", "-preset", "ultrafast", "-crf", "26"),
        *("-pix_fmt", "yuv420p", "-threads", "1"),
        *("-force_key_frames", f"expr:gte(t,n_forced*{_KEYFRAME_EVERY})"),
        # A file that only grows, and can be played from any number of fragments, even if ffmpeg is killed.
        *("-movflags", _FRAGMENTS, "-frag_duration", str(_FRAGMENT_MICROSECONDS)),
        *("-flush_packets", "1", "-f", "mp4", str(path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def _end(encoder: asyncio.subprocess.Process) -> None:
    assert encoder.stdin is not None
    encoder.stdin.close()
    try:
        async with asyncio.timeout(_END_SECONDS):
            await encoder.wait()
    except TimeoutError:
        encoder.kill()
        await encoder.wait()


async def finish_file(fragments: Path, path: Path) -> float:
    """Make a file of the fragments that is playable from any place, and return its duration in seconds."""
    finished = path.with_suffix(".tmp")
    copied = ("-c", "copy", "-movflags", "+faststart", "-f", "mp4", str(finished))
    await _run("-i", str(fragments), *copied)
    finished.replace(path)
    return await asyncio.to_thread(read_duration, path)


async def take_frame(path: Path, at: float) -> bytes:
    """Return the picture that was shown at that second, as JPEG; nothing if the recording was over."""
    window = 2 * _LEAST_PICTURES_EVERY
    first = max(0.0, at - window)
    shown = ("-f", "image2pipe", "-c:v", "mjpeg", "-q:v", "3", "pipe:1")
    frames = await _run(
        "-ss", f"{first:.3f}", "-i", str(path), "-t", f"{at - first + 0.001:.3f}", *shown
    )
    # During a pause of the sandbox there are none.
    frames = frames or await _run("-ss", f"{at:.3f}", "-i", str(path), "-frames:v", "1", *shown)
    return frames[max(0, frames.rfind(b"\xff\xd8\xff")) :]


async def _run(*arguments: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *("ffmpeg", "-nostdin", "-loglevel", "error", "-y", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    printed, _ = await process.communicate()
    if process.returncode:
        raise RecorderUnavailable("ffmpeg cannot read the recording.")
    return printed


def read_duration(path: Path) -> float:
    """Read the duration from the header of an MP4."""
    with path.open("rb") as file:
        moov = _find_box(file.read(1 << 20), (b"moov", b"mvhd"))
    version = moov[0]
    scale, duration = struct.unpack_from(">IQ" if version else ">II", moov, 20 if version else 12)
    return float(duration / scale)


def _find_box(content: bytes, names: Sequence[bytes]) -> bytes:
    offset = 0
    while offset + 8 <= len(content):
        size, kind = struct.unpack_from(">I4s", content, offset)
        if kind == names[0]:
            inside = content[offset + 8 : offset + size]
            return inside if len(names) == 1 else _find_box(inside, names[1:])
        offset += max(size, 8)
    raise RecorderUnavailable("The recording has no header.")
