"""Pictures of recordings, decoded by ffmpeg in a process of its own: the video comes from a sandbox."""

import asyncio
import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

import imageio_ffmpeg

from sandbox_server.domain.errors import DesktopRefused

_SECONDS, _MEMORY_KIB, _FILE_BLOCKS = 20, 2**21, 2**17
_LIMITED = 'ulimit -t "$1"; ulimit -v "$2"; ulimit -f "$3"; shift 3; exec "$@"'
# A picture is recorded at least each second, except while the sandbox is paused.
_WINDOW_S = 2.0
_TINY_S = 0.001


async def take_frame(video: bytes, at_s: float) -> bytes:
    """Return the last picture of a video until a second, as JPEG; nothing if it has none that can be decoded."""
    with tempfile.TemporaryDirectory(prefix="sandbox-frame-") as name:
        directory = Path(name)
        await asyncio.to_thread((directory / "video.mp4").write_bytes, video)
        for begin in (max(0.0, at_s - _WINDOW_S), 0.0):
            frame = await _decode(directory, begin, at_s)
            if frame or begin == 0:
                return frame
    return b""


async def _decode(directory: Path, begin: float, end: float) -> bytes:
    picture = directory / "picture.jpg"
    limits = map(str, (_SECONDS, _MEMORY_KIB, _FILE_BLOCKS))
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _LIMITED, "ffmpeg", *limits, await _find_ffmpeg()),
        *("-nostdin", "-loglevel", "error", "-y", "-threads", "1"),
        # Nothing but this file is opened, and nothing but H.264 is decoded, whatever the file says.
        *("-protocol_whitelist", "file", "-f", "mov", "-enable_drefs", "0"),
        *("-ss", f"{begin:.3f}", "-codec:v", "h264", "-i", "video.mp4"),
        *("-t", f"{end - begin + _TINY_S:.3f}", "-an", "-sn", "-dn"),
        *("-c:v", "mjpeg", "-q:v", "3", "-f", "image2", "-update", "1", "picture.jpg"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=directory,
        env={"PATH": "/usr/bin:/bin"},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(3 * _SECONDS):
            await process.wait()
    except TimeoutError:
        raise DesktopRefused("The recording cannot be decoded in time.") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
    with suppress(FileNotFoundError):
        return await asyncio.to_thread(picture.read_bytes)
    return b""


async def _find_ffmpeg() -> str:
    try:
        return await asyncio.to_thread(imageio_ffmpeg.get_ffmpeg_exe)
    except RuntimeError:
        raise DesktopRefused("The server has no ffmpeg for its platform.") from None
