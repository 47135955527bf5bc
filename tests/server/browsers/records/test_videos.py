"""Videos of pictures, by the real ffmpeg."""

import asyncio
import subprocess
from io import BytesIO

import imageio_ffmpeg
import pytest
from PIL import Image

from sandbox_server.browsers.records.frames import Frame
from sandbox_server.browsers.records.videos import VideoFormat, make_video
from sandbox_server.domain.errors import FeatureUnavailable


def frame(at_ms, color, size=(321, 201)):
    picture = BytesIO()
    Image.new("RGB", size, color).save(picture, "JPEG")
    return Frame(at_ms, picture.getvalue())


def colors(video, suffix, *seconds):
    """Decode what a video shows at these seconds, as the nearest plain colours."""
    found = []
    for second in seconds:
        command = (imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-f", suffix, "-i", "-")
        out = (
            "-vf",
            f"fps=10,trim=start={second}",
            "-frames:v",
            "1",
            "-f",
            "image2pipe",
            "-c:v",
            "png",
            "-",
        )
        done = subprocess.run((*command, *out), input=video, capture_output=True, check=True)
        shown = Image.open(BytesIO(done.stdout)).convert("RGB").resize((1, 1)).tobytes()
        found.append(("red", "green", "blue")[shown.index(max(shown))])
    return found


@pytest.mark.parametrize(
    ("kind", "suffix"), [(VideoFormat.MP4, "mp4"), (VideoFormat.SEGMENT, "mpegts")]
)
async def test_video__shows_each_picture_until_the_next(kind, suffix):
    frames = [frame(5000, "red"), frame(7000, "#00ff00"), frame(8000, "blue")]
    video = await make_video(frames, kind)
    assert await asyncio.to_thread(colors, video, suffix, 0.5, 2.5, 3.2) == ["red", "green", "blue"]


async def test_video__pictures_of_other_sizes_are_fitted():
    video = await make_video([frame(0, "red"), frame(1000, "blue", (100, 100))], VideoFormat.MP4)
    assert await asyncio.to_thread(colors, video, "mp4", 0.5, 1.3) == ["red", "blue"]


async def test_video__what_is_no_picture_is_refused():
    with pytest.raises(FeatureUnavailable):
        await make_video([Frame(0, b"#EXTM3U\n/etc/passwd")], VideoFormat.MP4)
