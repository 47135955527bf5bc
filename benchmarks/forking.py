import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from e2b import AsyncSandbox

from benchmarks.engine import Engine, started_engine
from benchmarks.report import Figure
from benchmarks.timing import medians, timed

_ROUNDS = 7
_MIB = 1024
_FILE_SYSTEM_MIB = 8 * _MIB


async def forks() -> AsyncIterator[Figure]:
    """Measure forks of a sandbox with 1 GiB of files."""
    async with started_engine() as engine:
        yield await _fork(engine)
    if shutil.which("mkfs.xfs") is None:  # of the package xfsprogs
        return
    async with _sharing_file_system() as mounted, started_engine(parent=mounted) as engine:
        yield await _shared_fork(engine)


async def _fork(engine: Engine) -> Figure:
    source = await _big_sandbox(engine)
    image = engine.state_dir / "sandboxes" / source.sandbox_id / "disk.img"

    async def copy() -> float:
        target = engine.state_dir / "copy"
        elapsed, _ = await timed(_run("cp", "-a", "--reflink=auto", image, target))
        target.unlink()
        await asyncio.to_thread(os.sync)
        return elapsed

    p50, floor_p50 = await medians(lambda: _timed_fork(source), copy, rounds=_ROUNDS)
    return Figure("fork with 1 GiB / cp -a --reflink=auto", p50, "ms", target=1.5, floor=floor_p50)


async def _shared_fork(engine: Engine) -> Figure:
    source = await _big_sandbox(engine)

    async def create() -> float:
        elapsed, sandbox = await timed(engine.create())
        await sandbox.kill()
        return elapsed

    p50, floor_p50 = await medians(lambda: _timed_fork(source), create, rounds=_ROUNDS)
    return Figure("the same on XFS / create of an empty one", p50, "ms", floor=floor_p50)


async def _big_sandbox(engine: Engine) -> AsyncSandbox:
    sandbox = await engine.create()
    await sandbox.commands.run(f"head -c {_MIB}M /dev/urandom > big; sync", timeout=0)
    return sandbox


async def _timed_fork(source: AsyncSandbox) -> float:
    elapsed, (fork,) = await timed(source.fork(retries=0))
    assert isinstance(fork, AsyncSandbox), fork
    await fork.kill()
    await asyncio.to_thread(os.sync)
    return elapsed


@asynccontextmanager
async def _sharing_file_system() -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-", dir="/var/tmp") as directory:
        image, mounted = Path(directory) / "image", Path(directory) / "mounted"
        mounted.mkdir()
        with image.open("wb") as file:
            os.truncate(file.fileno(), _FILE_SYSTEM_MIB << 20)
        await _run("mkfs.xfs", "-q", image)
        await _run("mount", "-o", "loop", image, mounted)
        try:
            yield mounted
        finally:
            await _run("umount", mounted)


async def _run(*argv: str | Path) -> None:
    process = await asyncio.create_subprocess_exec(*argv)
    assert await process.wait() == 0
