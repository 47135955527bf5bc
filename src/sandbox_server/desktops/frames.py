"""Pictures of recordings, decoded by ffmpeg."""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

from sandbox_server.domain.errors import DesktopRefused
from sandbox_server.ffmpeg import FfmpegFailed, run_ffmpeg

_CPU_S = 20
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
    arguments = (
        # Nothing but H.264 is decoded, whatever the file says.
        *("-f", "mov", "-enable_drefs", "0", "-ss", f"{begin:.3f}"),
        *("-codec:v", "h264", "-i", "video.mp4", "-t", f"{end - begin + _TINY_S:.3f}"),
        *("-an", "-sn", "-dn", "-c:v", "mjpeg", "-q:v", "3"),
        *("-f", "image2", "-update", "1", "picture.jpg"),
    )
    try:
        await run_ffmpeg(directory, *arguments, cpu_s=_CPU_S)
    except FfmpegFailed as error:
        raise DesktopRefused(str(error)) from None
    with suppress(FileNotFoundError):
        return await asyncio.to_thread((directory / "picture.jpg").read_bytes)
    return b""
