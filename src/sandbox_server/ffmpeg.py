"""ffmpeg in a process of its own, with limits: what it decodes comes from sandboxes."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import imageio_ffmpeg

_MEMORY_KIB, _FILE_BLOCKS = 2**21, 2**19
_LIMITED = 'ulimit -t "$1"; ulimit -v "$2"; ulimit -f "$3"; shift 3; exec "$@"'
_PATIENCE = 3
"""Times the CPU seconds, which a loaded machine takes."""


class FfmpegFailed(Exception):
    """The program is missing, or did not end in time."""


async def run_ffmpeg(directory: Path, *arguments: str, cpu_s: int) -> bool:
    """Run ffmpeg in a directory, with no protocol but files; returns whether it succeeded."""
    limits = map(str, (cpu_s, _MEMORY_KIB, _FILE_BLOCKS))
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _LIMITED, "ffmpeg", *limits, await _find_ffmpeg()),
        *("-nostdin", "-loglevel", "error", "-y", "-threads", "1"),
        *("-protocol_whitelist", "file"),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=directory,
        env={"PATH": "/usr/bin:/bin"},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_PATIENCE * cpu_s):
            return await process.wait() == 0
    except TimeoutError:
        raise FfmpegFailed("The recording cannot be processed in time.") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())


async def _find_ffmpeg() -> str:
    try:
        return await asyncio.to_thread(imageio_ffmpeg.get_ffmpeg_exe)
    except RuntimeError:
        raise FfmpegFailed("The server has no ffmpeg for its platform.") from None
