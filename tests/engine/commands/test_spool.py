import asyncio
import os

import pytest

from sandbox_engine.commands.spool import (
    Output,
    Spool,
    SpoolFull,
    Stream,
)
from tests.engine.bare_container import descriptors, eventually

KIB = 1024


async def everything(spool):
    found = []
    while (output := await spool.get()) is not None:
        found.append(output)
    return found


def pieces(count, *, size=64 * KIB):
    streams = list(Stream)
    return [
        Output(streams[number % 3], number.to_bytes(4, "big") * (size // 4))
        for number in range(count)
    ]


async def test_spool__order_and_streams_survive_memory_and_files(tmp_path):
    spool = Spool(tmp_path, memory=256 * KIB)
    written = pieces(600)
    for output in written:
        spool.put(output)
    spool.end()
    assert await everything(spool) == written


async def test_spool__order_survives_a_reader_that_falls_back_and_catches_up(tmp_path):
    spool = Spool(tmp_path, memory=128 * KIB)
    written = pieces(300)
    found: list[Output | None] = []
    for number, output in enumerate(written):
        spool.put(output)
        falls_back = number % 50 < 30
        for _ in range(0 if falls_back else 3):
            if len(found) <= number:
                found.append(await spool.get())
    spool.end()
    assert found + await everything(spool) == written


async def test_spool__waiting_reader_gets_new_output(tmp_path):
    spool = Spool(tmp_path)
    reading = asyncio.create_task(spool.get())
    await asyncio.sleep(0)
    spool.put(Output(Stream.PTY, b"late"))
    assert await reading == Output(Stream.PTY, b"late")


async def test_spool__cancelled_read_loses_nothing(tmp_path):
    spool = Spool(tmp_path)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await spool.get()
    spool.put(Output(Stream.STDOUT, b"kept"))
    assert await spool.get() == Output(Stream.STDOUT, b"kept")


async def test_spool__waiting_reader_gets_the_end(tmp_path):
    spool = Spool(tmp_path)
    reading = asyncio.create_task(spool.get())
    await asyncio.sleep(0)
    spool.end()
    assert await reading is None


async def test_spool__files_are_unlinked_and_freed_while_read(tmp_path):
    before = open_files(tmp_path)
    spool = Spool(tmp_path, memory=0)
    for output in pieces(1024):
        spool.put(output)
    assert list(tmp_path.iterdir()) == []
    most = open_files(tmp_path) - before
    for _ in range(1000):
        await spool.get()
    assert open_files(tmp_path) - before < most
    spool.close()
    await eventually(lambda: open_files(tmp_path) == before)


async def test_spool__slow_reader_is_disconnected_with_a_reason(tmp_path):
    spool = Spool(tmp_path, memory=64 * KIB, disk=256 * KIB)
    for output in pieces(5):
        spool.put(output)
    with pytest.raises(SpoolFull):
        spool.put(Output(Stream.STDOUT, b"one too many"))
    await eventually(lambda: open_files(tmp_path) == 0)
    with pytest.raises(SpoolFull, match="the reader is too slow"):
        await spool.get()


async def test_spool__full_disk_disconnects_the_reader(tmp_path):
    spool = Spool(tmp_path / "nowhere", memory=0)
    with pytest.raises(SpoolFull):
        spool.put(Output(Stream.STDOUT, b"lost"))


async def test_spool__error_drops_unread_output(tmp_path):
    spool = Spool(tmp_path)
    spool.put(Output(Stream.STDOUT, b"unread"))
    spool.end(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await spool.get()


def open_files(directory):
    return sum(name.startswith(str(directory)) for name in descriptors(os.getpid()))
