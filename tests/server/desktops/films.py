"""Real films, as the recorder in a sandbox makes them."""

import re
import subprocess

import imageio_ffmpeg

ENCODED = (
    *("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"),
    *("-force_key_frames", "expr:gte(t,n_forced*10)"),
    *("-movflags", "+frag_keyframe+empty_moov+default_base_moof"),
    *("-frag_duration", "1000000", "-f", "mp4"),
)


def ffmpeg(*arguments, check=True):
    return subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-nostdin", "-hide_banner", "-y", *arguments],
        capture_output=True,
        check=check,
        timeout=60,
    )


def make_film(path, *, seconds=24, size="160x120", rate=5, source=None):
    """Make a film that is red, and green from the middle on."""
    half = seconds / 2
    colours = f"color=red:size={size}:rate={rate}:duration={half}[a];color=lime:size={size}:rate={rate}:duration={half}[b];[a][b]concat"
    ffmpeg("-f", "lavfi", "-i", source or colours, *ENCODED, str(path))
    return path.read_bytes()


def duration_of(path):
    """Play a whole film, and return how long it says it is; a damaged one fails."""
    played = ffmpeg("-v", "info", "-xerror", "-i", str(path), "-f", "null", "-")
    told = re.search(rb"Duration: (\d+):(\d+):([\d.]+)", played.stderr)
    assert told, played.stderr
    return float(told[1]) * 3600 + float(told[2]) * 60 + float(told[3])
