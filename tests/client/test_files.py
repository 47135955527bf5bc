import asyncio
import io
import tarfile

import pytest

from sandbox_client.errors import DirectoryNotEmpty, FileChanged, PathNotFound, PathRefused
from sandbox_client.events import FileChange, WatchEnded
from sandbox_client.models import FileType

pytestmark = pytest.mark.needs_engine


@pytest.fixture
async def files(sandbox):
    """Give a sandbox's files, with a directory `here` for the test."""
    await sandbox.files.mkdir("here")
    yield sandbox.files
    await sandbox.files.delete("here", recursive=True)


@pytest.mark.parametrize(
    ("content", "arrived"),
    [
        (b"\0\xff bytes", b"\0\xff bytes"),
        ("tëxt", "tëxt".encode()),
        (b"", b""),
        ([b"in ", b"parts"], b"in parts"),
        (io.BytesIO(b"a file"), b"a file"),
    ],
    ids=["bytes", "text", "nothing", "parts", "file"],
)
async def test_files__write_and_read(files, content, arrived):
    if hasattr(content, "seek"):
        content.seek(0)
    await files.write("here/it", content)
    assert await files.read("here/it") == arrived
    assert (await files.stat("here/it")).size == len(arrived)


async def test_files__read_a_range(files):
    await files.write("here/it", "0123456789")
    assert await files.read("here/it", offset=3, limit=4) == b"3456"
    assert await files.read("here/it", offset=8) == b"89"
    assert await files.read("here/it", offset=10) == b""
    assert [part async for part in files.stream("here/it", limit=2)] == [b"01"]


async def test_files__upload_and_download_a_large_file(files, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 20_000)
    version = await files.upload(source, "here/large")
    await files.download("here/large", target)
    assert target.read_bytes() == source.read_bytes()
    assert (await files.stat("here/large")).etag == version.etag
    held = io.BytesIO()
    await files.download("here/large", held)
    assert held.getvalue() == source.read_bytes()
    assert {entry.name for entry in tmp_path.iterdir()} == {"source", "target"}


async def test_files__if_match_replaces_only_the_known_version(files):
    first = await files.write("here/it", "one", must_be_new=True)
    with pytest.raises(FileChanged):
        await files.write("here/it", "two", must_be_new=True)
    second = await files.write("here/it", "two", if_match=first.etag)
    with pytest.raises(FileChanged):
        await files.write("here/it", "three", if_match=first.etag)
    with pytest.raises(FileChanged):
        await files.delete("here/it", if_match=first.etag)
    await files.delete("here/it", if_match=second.etag)
    assert not await files.exists("here/it")


async def test_files__list_move_and_delete_a_directory(files):
    for name in ("b", "a", "deep/er/c"):
        await files.write(f"here/{name}", name)
    listed = [entry async for entry in files.list("here", depth=3)]
    assert [entry.name for entry in listed] == ["a", "b", "deep", "er", "c"]
    assert listed[2].type is FileType.DIRECTORY
    moved = await files.move("here/deep", "here/else")
    assert moved.name == "else"
    assert await files.exists("here/else")
    with pytest.raises(DirectoryNotEmpty):
        await files.delete("here/else")
    await files.delete("here/else", recursive=True)
    with pytest.raises(PathNotFound):
        await files.delete("here/else")
    with pytest.raises(PathNotFound):
        await files.read("here/else")
    with pytest.raises(PathRefused):
        await files.read("here")


async def test_files__as_user_sets_the_owner(files):
    await files.as_user("root").write("/tmp/of-root", "of root")
    await files.write("/tmp/of-user", "of the user")
    owners = {entry.name: entry.owner async for entry in files.list("/tmp")}
    assert (owners["of-root"], owners["of-user"]) == ("root", "user")


async def test_files__pack_and_unpack_an_archive(files, tmp_path):
    await files.write("here/from/a.txt", "in it")
    await files.pack("here/from", tmp_path / "it.tar.gz", kind="tar.gz")
    with tarfile.open(tmp_path / "it.tar.gz", "r:gz") as archive:
        assert "./a.txt" in archive.getnames()
    await files.unpack("here/to", tmp_path / "it.tar.gz")
    assert await files.read_text("here/to/a.txt") == "in it"
    parts = b"".join([part async for part in files.stream_archive("here/from")])
    await files.unpack("here/again", [parts[:100], parts[100:]])
    assert await files.read_text("here/again/a.txt") == "in it"


async def test_watch__streams_changes_until_the_sandbox_ends(client):
    async with await client.create_sandbox(template="base") as sandbox:
        told = sandbox.files.watch(".", recursive=True)
        first = asyncio.ensure_future(anext(told))
        async with asyncio.timeout(20):
            while not first.done():  # nobody says when the watch has begun
                await sandbox.run("echo x >seen")
        assert isinstance(await first, FileChange)
        assert (await first).path == "seen"
        await sandbox.delete()
        async with asyncio.timeout(20):
            *_, last = [event async for event in told]
    assert isinstance(last, WatchEnded)
    assert last.reason
