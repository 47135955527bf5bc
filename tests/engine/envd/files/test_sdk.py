"""The file calls of the unmodified SDK, sync and async."""

import asyncio
import io
import os

import pytest
import pytest_asyncio
from e2b import FileNotFoundException, FilesystemEvent, FileType, InvalidArgumentException
from e2b.api.client_async import get_envd_api as get_async_api
from e2b.api.client_sync import get_envd_api as get_sync_api
from e2b.connection_config import ConnectionConfig
from e2b.sandbox_async.filesystem.filesystem import Filesystem as AsyncFilesystem
from e2b.sandbox_sync.filesystem.filesystem import Filesystem
from packaging.version import Version

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

ENVD = Version("0.6.4")
MIB = 1 << 20


@pytest.fixture
def config():
    return ConnectionConfig(api_key="e2b_" + 40 * "0")


@pytest_asyncio.fixture(loop_scope="module")
async def files(config, url, box):
    return AsyncFilesystem(url, ENVD, config, get_async_api(config, url))


@pytest.fixture
def sync_files(config, url, box):
    return Filesystem(url, ENVD, config, get_sync_api(config, url))


@pytest.mark.parametrize(("octets", "compressed"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(
    "data", ["text\r\n", b"\x00\xff", "", io.BytesIO(b"x" * MIB), io.StringIO("é" * 70_000)]
)
async def test_sdk_files__written_data_is_read_back(files, data, octets, compressed):
    expected = data
    if hasattr(data, "seek"):
        data.seek(0)
        expected = data.getvalue()
    written = await files.write("dir/file", data, gzip=compressed, use_octet_stream=octets)
    assert (written.path, written.type) == ("/home/user/dir/file", FileType.FILE)
    expected = expected.encode() if isinstance(expected, str) else expected
    assert await files.read("dir/file", format="bytes", gzip=compressed) == expected
    stream = await files.read("dir/file", format="stream", gzip=compressed)
    assert b"".join([chunk async for chunk in stream]) == expected


async def test_sdk_files__many_files_are_written_in_one_call(files):
    paths = ["a", "deep/er/b", "/tmp/c", 'q"uote', "new\nline", "per%cent"]
    written = await files.write_files([{"path": path, "data": path} for path in paths])
    assert [info.name for info in written] == ["a", "b", "c", 'q"uote', "new\nline", "per%cent"]
    for path in paths:
        assert await files.read(path) == path


async def test_sdk_files__metadata_is_written_and_read(files):
    await files.write("file", "x", metadata={"Colour": "red"})
    assert (await files.get_info("file")).metadata == {"colour": "red"}
    assert (await files.list("."))[0].metadata == {"colour": "red"}
    await files.write("file", "x")
    assert (await files.get_info("file")).metadata is None


async def test_sdk_files__files_are_listed_found_moved_and_removed(files):
    assert await files.make_dir("a/b")
    assert not await files.make_dir("a/b")
    await files.write("a/file", "text")
    assert [(entry.name, entry.type) for entry in await files.list("a", depth=2)] == [
        ("b", FileType.DIR),
        ("file", FileType.FILE),
    ]
    moved = await files.rename("a/file", "a/b/moved")
    assert (moved.path, moved.size, moved.owner) == ("/home/user/a/b/moved", 4, "user")
    assert await files.exists("a/b/moved")
    assert not await files.exists("a/file")
    await files.remove("a")
    assert await files.list("~") == []


async def test_sdk_files__errors_are_those_of_the_sdk(files):
    with pytest.raises(FileNotFoundException):
        await files.read("no")
    with pytest.raises(FileNotFoundException):
        await files.list("no")
    with pytest.raises(FileNotFoundException):
        await files.rename("no", "x")
    with pytest.raises(InvalidArgumentException):
        await files.read("~")
    with pytest.raises(InvalidArgumentException):
        await files.write("a\0b", "x")


async def test_sdk_files__a_directory_is_watched(files):
    happened: asyncio.Queue[FilesystemEvent] = asyncio.Queue()
    handle = await files.watch_dir(
        "~", on_event=happened.put, recursive=True, include_entry=True, timeout=0
    )
    await files.write("dir/file", "text")
    async with asyncio.timeout(10):
        while (event := await happened.get()).name != "dir/file":
            pass
    assert event.entry is not None
    assert event.entry.path == "/home/user/dir/file"
    await handle.stop()


async def test_sdk_files__sync_sdk_works_too(sync_files):
    def use():
        sync_files.write("file", "text")
        watch = sync_files.watch_dir("~")
        content = os.urandom(3 * MIB)
        sync_files.write("large", io.BytesIO(content))
        assert b"".join(sync_files.read("large", format="stream")) == content
        assert {event.name for event in watch.get_new_events()} == {"large"}
        watch.stop()
        assert [entry.name for entry in sync_files.list("~")] == ["file", "large"]
        return sync_files.read("file", user="user")

    assert await asyncio.to_thread(use) == "text"
