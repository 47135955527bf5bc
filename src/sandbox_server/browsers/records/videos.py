"""Videos of recorded pages, which ffmpeg encodes from their pictures on request."""

import asyncio
import os
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from sandbox_server.browsers.records.frames import Frame
from sandbox_server.domain.errors import FeatureUnavailable
from sandbox_server.ffmpeg import FfmpegFailed, run_ffmpeg

_CPU_S = 120
LAST_S = 1.0
"""How long the last picture is shown."""

_AT_ONCE = asyncio.Semaphore(1)


class VideoFormat(StrEnum):
    MP4 = "mp4"
    SEGMENT = "ts"  # of HLS


_FORMATS = {
    VideoFormat.MP4: ("-movflags", "+faststart", "-f", "mp4"),
    VideoFormat.SEGMENT: ("-bsf:v", "h264_mp4toannexb", "-f", "mpegts"),
}


async def make_video(frames: Sequence[Frame], kind: VideoFormat) -> bytes:
    """Make a video in which each picture is shown until the next; raises if there is no ffmpeg, or if it fails."""
    with tempfile.TemporaryDirectory(prefix="sandbox-video-") as name:
        directory = Path(name)
        await asyncio.to_thread(_write, directory, frames)
        video = directory / f"video.{kind}"
        async with _AT_ONCE:  # it takes a core
            try:
                is_made = await run_ffmpeg(directory, *_arguments(kind), video.name, cpu_s=_CPU_S)
            except FfmpegFailed as error:
                raise FeatureUnavailable(str(error)) from None
        if not is_made:
            raise FeatureUnavailable("The pictures of the recording cannot be decoded.")
        return await asyncio.to_thread(video.read_bytes)


def _arguments(kind: VideoFormat) -> Sequence[str]:
    # Files are read as JPEG pictures only, whatever is in them; each is shown from its modification time on.
    pictures = (
        "-f image2 -ts_from_file 2 -c:v mjpeg -i %06d.jpg -abort_on empty_output -fps_mode vfr"
    )
    # Pictures of pages differ in size; sides of H.264 pictures are even.
    encoding = "-vf scale=trunc(iw/2)*2:trunc(ih/2)*2 -pix_fmt yuv420p -c:v libx264 -preset ultrafast -crf 28"
    return (*pictures.split(), *encoding.split(), *_FORMATS[kind])


def _write(directory: Path, frames: Sequence[Frame]) -> None:
    last = frames[-1]
    shown = [*frames, Frame(last.at_ms + round(LAST_S * 1000), last.picture)]
    for number, frame in enumerate(shown):
        picture = directory / f"{number:06}.jpg"
        picture.write_bytes(frame.picture)
        at_ns = frame.at_ms * 10**6
        os.utime(picture, ns=(at_ns, at_ns))
