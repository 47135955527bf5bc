"""Runs programs on untrusted data, isolated from this machine."""

import asyncio
import json
import os
import sys
from asyncio import FIRST_COMPLETED
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sandbox_engine.images.disk_space import DiskSpace
from sandbox_engine.images.jail import Specification
from sandbox_engine.images.scratch import Scratch
from sandbox_engine.images.sources import program_environment
from sandbox_engine.rootfs.ownership import ID_COUNT, UID_BASE
from sandbox_engine.system.subprocesses import Completed

# The first id above those of sandboxes; unused by accounts of this machine.
FETCHER = UID_BASE + ID_COUNT
# All ids from the first one of sandboxes on: an image may have owners beyond their range.
_ALL_IDS = 0xFFFF_FFFF - UID_BASE

_CHUNK = 64 << 10
_KEPT_OF_STDERR = 64 << 10


class OutputTooLong(Exception):
    """The program's output exceeds its limit."""


@dataclass(frozen=True)
class Confinement:
    """Directories and limits of confined programs; only `work` is writable."""

    scratch: Scratch
    work: Path
    room: DiskSpace
    time_limit: timedelta

    async def fetch(
        self, *argv: str, stdout_limit: int = 0, inputs: Path | None = None
    ) -> Completed:
        """Run a program with network access, as an unprivileged account."""
        os.chown(self.work, FETCHER, FETCHER)
        specification = self._specification(FETCHER, ids=0, network=True, inputs=inputs)
        return await self._run(argv, specification, stdout_limit=stdout_limit)

    async def unpack(self, *argv: str, inputs: Path) -> Completed:
        """Run a program that creates files of many owners, as root of the sandboxes' ids only."""
        os.chown(self.work, UID_BASE, UID_BASE)
        specification = self._specification(UID_BASE, ids=_ALL_IDS, network=False, inputs=inputs)
        return await self._run(argv, specification, stdout_limit=0)

    def _specification(
        self, first_id: int, *, ids: int, network: bool, inputs: Path | None
    ) -> Specification:
        root = self.scratch.path / "root"
        root.mkdir(exist_ok=True)
        return Specification(
            root=str(root),
            work=str(self.work),
            inputs=str(inputs) if inputs else None,
            network=network,
            first_id=first_id,
            ids=ids,
            largest_file=self.room.limit,
        )

    async def _run(
        self, argv: Sequence[str], specification: Specification, *, stdout_limit: int
    ) -> Completed:
        environment = program_environment(proxies=specification["network"])
        package = str(Path(__file__).parents[2])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-S", "-m", "sandbox_engine.images.jail"),
            *(json.dumps(specification), *argv),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd="/",
            env=environment | {"HOME": "/work", "TMPDIR": "/work", "PYTHONPATH": package},
            pass_fds=(self.scratch.lock,),
        )
        watch = self.room.watch(self.work)
        async with asyncio.timeout(self.time_limit.total_seconds()):
            return await _completed(process, watch, stdout_limit=stdout_limit)


async def _completed(
    process: Process, watch: Coroutine[None, None, None], *, stdout_limit: int
) -> Completed:
    assert process.stdout is not None
    assert process.stderr is not None
    stdout = asyncio.create_task(_head(process.stdout, stdout_limit))
    stderr = asyncio.create_task(_tail(process.stderr))
    ended = asyncio.create_task(process.wait())
    watching = asyncio.create_task(watch)
    waiting = {stdout, stderr, ended}
    try:
        while waiting:
            done, _ = await asyncio.wait({*waiting, watching}, return_when=FIRST_COMPLETED)
            for task in done:
                task.result()
            waiting -= done
        return Completed(ended.result(), stdout.result(), stderr.result())
    finally:
        await _cancel(stdout, stderr, ended, watching)
        await _end(process)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _end(process: Process) -> None:
    """Wait for the process and its children to end."""
    if process.returncode is None:
        process.kill()
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(_CHUNK):
            pass
    await process.wait()


async def _head(stream: asyncio.StreamReader, limit: int) -> bytes:
    read = bytearray()
    while chunk := await stream.read(_CHUNK):
        read += chunk
        if len(read) > limit:
            raise OutputTooLong
    return bytes(read)


async def _tail(stream: asyncio.StreamReader) -> bytes:
    read = bytearray()
    while chunk := await stream.read(_CHUNK):
        read += chunk
        del read[:-_KEPT_OF_STDERR]
    return bytes(read)
