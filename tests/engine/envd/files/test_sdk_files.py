"""Files read and written through the unmodified SDK."""

import asyncio
import gzip
import hashlib
import io
import random

import httpx
import pytest
from e2b import FileNotFoundException, FileType, InvalidArgumentException
from e2b.sandbox.filesystem.filesystem import WriteEntry

from tests.engine.memory_growth import MIB, grows_by_less_than

pytestmark = pytest.mark.needs_engine

EVERY_BYTE = random.Random(2).randbytes(70_000)
FORMS = [
    pytest.param({"use_octet_stream": True}, id="octet-stream"),
    pytest.param({"use_octet_stream": False}, id="multipart"),
    pytest.param({"gzip": True}, id="gzip"),
]


async def test_files__text_round_trips(shared, directory):
    text = "tab\t, newline\n, carriage return\r\n, \N{SNOWMAN}, no newline at the end"
    written = await shared.files.write(f"{directory}/note.txt", text)
    assert (written.name, written.path) == ("note.txt", f"{directory}/note.txt")
    assert written.type is FileType.FILE
    assert await shared.files.read(written.path) == text
    assert (await shared.commands.run(f"cat {written.path}")).stdout == text


def test_files__sync_sdk_reads_and_writes_all_formats(shared_sync):
    files = shared_sync.files
    files.write("sync/bytes", EVERY_BYTE)
    files.write("sync/stream", (EVERY_BYTE[at : at + 1000] for at in range(0, 70_000, 1000)))
    files.write("sync/object", io.BytesIO(EVERY_BYTE), gzip=True)
    assert files.read("sync/bytes", format="bytes") == EVERY_BYTE
    assert files.read("sync/stream", format="bytes", gzip=True) == EVERY_BYTE
    assert b"".join(files.read("sync/object", format="stream")) == EVERY_BYTE


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("content", [b"", b"\0", EVERY_BYTE, EVERY_BYTE * 40])
async def test_files__bytes_round_trip_in_all_formats(shared, directory, form, content):
    path = f"{directory}/bytes"
    await shared.files.write(path, content, **form)
    assert await shared.files.read(path, format="bytes") == content
    assert await shared.files.read(path, format="bytes", gzip=True) == content
    assert b"".join([piece async for piece in await shared.files.read(path, "stream")]) == content


async def test_files__streams_and_file_objects_are_uploaded(shared, directory):
    async def pieces():
        for number in range(100):
            yield b"%d\n" % number

    await shared.files.write(f"{directory}/pieces", pieces())
    await shared.files.write(f"{directory}/text", io.StringIO("text \N{SNOWMAN}"))
    await shared.files.write(f"{directory}/form", io.BytesIO(b"form"), use_octet_stream=False)
    assert await shared.files.read(f"{directory}/pieces") == "".join(f"{n}\n" for n in range(100))
    assert await shared.files.read(f"{directory}/text") == "text \N{SNOWMAN}"
    assert await shared.files.read(f"{directory}/form") == "form"


async def test_files__download_is_compressed_on_request(engine, shared, directory):
    await shared.files.write(f"{directory}/zeros", bytes(MIB))
    url = shared.download_url(f"{directory}/zeros")
    async with httpx.AsyncClient(timeout=60) as client:
        compressed = await client.get(url, headers={"Accept-Encoding": "gzip"})
        plain = await client.get(url, headers={"Accept-Encoding": "identity"})
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.content == plain.content == bytes(MIB)
    assert compressed.num_bytes_downloaded < 10_000
    assert plain.headers["content-length"] == str(MIB)


@pytest.mark.parametrize("form", FORMS)
async def test_files__many_files_are_written_at_once(shared, directory, form):
    entries = [
        WriteEntry(path=f"{directory}/{number % 3}/{number}", data=f"content {number}")
        for number in range(30)
    ]
    written = await shared.files.write_files(entries, **form)
    assert [one.path for one in written] == [entry["path"] for entry in entries]
    contents = await asyncio.gather(*(shared.files.read(entry["path"]) for entry in entries))
    assert contents == [entry["data"] for entry in entries]
    assert await shared.files.write_files([]) == []


async def test_files__duplicate_path_in_a_form_is_rejected(shared, directory):
    twice = [WriteEntry(path=f"{directory}/same", data=data) for data in ("first", "second")]
    with pytest.raises(InvalidArgumentException, match="multiple files to the same path"):
        await shared.files.write_files(twice)


async def test_files__overwritten_file_keeps_its_inode(shared, directory):
    path = f"{directory}/script"
    await shared.files.write(path, "a longer content than the next")
    await shared.commands.run(f"chmod 750 {path} && ln {path} {path}.link")
    await shared.files.write(path, "short")
    assert await shared.files.read(f"{path}.link") == "short"
    assert (await shared.files.get_info(path)).permissions == "-rwxr-x---"


async def test_files__relative_paths_and_tilde_are_in_the_home(shared):
    assert (await shared.files.write("in-home", "x")).path == "/home/user/in-home"
    assert (await shared.files.write("~/tilde", "x")).path == "/home/user/tilde"
    assert (await shared.files.write("./a/../b//c", "x")).path == "/home/user/b/c"
    assert (await shared.files.write("in-home", "y", user="root")).path == "/root/in-home"
    assert await shared.files.read("/root/in-home") == "y"
    assert await shared.files.exists("in-home", user="root")
    assert [entry.name for entry in await shared.files.list("b")] == ["c"]


async def test_files__new_files_and_directories_belong_to_the_user(shared):
    await shared.files.write("/opt/owned/deep/file", "x")
    await shared.files.write("/opt/roots/deep/file", "x", user="root")
    for path, owner in (("owned", "user"), ("roots", "root")):
        listed = [
            await shared.files.get_info(f"/opt/{path}{rest}")
            for rest in ("", "/deep", "/deep/file")
        ]
        assert {(one.owner, one.group) for one in listed} == {(owner, owner)}
        assert [one.permissions for one in listed] == ["drwxr-xr-x", "drwxr-xr-x", "-rw-r--r--"]
    assert (await shared.files.get_info("/opt")).owner == "root"


async def test_files__metadata_is_stored_and_replaced(shared, directory):
    path = f"{directory}/tagged"
    written = await shared.files.write(path, "x", metadata={"Author": "me", "note": "a: b, =c"})
    kept = {"author": "me", "note": "a: b, =c"}
    assert written.metadata == kept
    assert (await shared.files.get_info(path)).metadata == kept
    assert (await shared.files.list(directory))[0].metadata == kept
    await shared.files.rename(path, f"{path}.new")
    assert (await shared.files.get_info(f"{path}.new")).metadata == kept
    inside = await shared.commands.run(
        f"""python3 -c 'import os; print(os.getxattr("{path}.new", "user.e2b.author"))'"""
    )
    assert inside.stdout == "b'me'\n"
    await shared.files.write(f"{path}.new", "y")
    assert (await shared.files.get_info(f"{path}.new")).metadata is None


@pytest.mark.parametrize("form", FORMS)
async def test_files__too_large_metadata_is_rejected(shared, directory, form):
    path = f"{directory}/tagged"
    await shared.files.write(path, "old")
    with pytest.raises(InvalidArgumentException, match="exceeds 4096 bytes"):
        await shared.files.write(path, "new", metadata={"long": "v" * 5000}, **form)
    assert await shared.files.read(path) == "old"


async def test_files__all_kinds_of_names_are_kept(shared, directory):
    names = ["a b", "ü\N{SNOWMAN}", "per%20cent", "a+b&c=d?e#f", "quote'\"", "-rf", "*", "back\\s"]
    names += ["n" * 255, "new\nline"]
    for name in names:
        path = f"{directory}/{name}"
        assert (await shared.files.write(path, name)).path == path
        assert (await shared.files.write(path, name, use_octet_stream=True)).name == name
        assert await shared.files.read(path) == name
    assert {entry.name for entry in await shared.files.list(directory)} == set(names)
    inside = await shared.commands.run(f"find {directory} -type f -print0")
    assert set(inside.stdout.strip("\0").split("\0")) == {f"{directory}/{name}" for name in names}


async def test_files__concurrent_uploads_all_arrive(shared, directory):
    contents = [random.Random(number).randbytes(MIB) for number in range(24)]
    forms = [{"use_octet_stream": True}, {"use_octet_stream": False}, {"gzip": True}]
    await asyncio.gather(
        *(
            shared.files.write(f"{directory}/{number}", content, **forms[number % 3])
            for number, content in enumerate(contents)
        )
    )
    read = await asyncio.gather(
        *(shared.files.read(f"{directory}/{number}", format="bytes") for number in range(24))
    )
    assert read == contents


async def test_files__concurrent_uploads_to_one_path_keep_one_complete(shared, directory):
    contents = [bytes([number]) * (MIB + number) for number in range(12)]
    await asyncio.gather(*(shared.files.write(f"{directory}/one", content) for content in contents))
    assert await shared.files.read(f"{directory}/one", format="bytes") in contents


@pytest.mark.slow  # large transfers
async def test_files__transfer_of_100_mib_uses_constant_memory(engine, shared, directory):
    piece = random.Random(3).randbytes(MIB)
    path = f"{directory}/large"

    async def upload():
        for _ in range(100):
            yield piece

    digest = hashlib.sha256()
    with grows_by_less_than(40 * MIB, pid=engine.pid):
        await shared.files.write(path, upload())
        async for received in await shared.files.read(path, format="stream"):
            digest.update(received)
    assert digest.digest() == hashlib.sha256(piece * 100).digest()


@pytest.mark.slow  # large transfers
async def test_files__form_of_256_mib_uses_constant_memory(engine, shared, directory, tmp_path):
    large = tmp_path / "large"
    with large.open("w+b") as file:
        file.truncate(256 * MIB)
        with grows_by_less_than(40 * MIB, pid=engine.pid):
            await shared.files.write(f"{directory}/large", file, use_octet_stream=False)
    assert (await shared.files.get_info(f"{directory}/large")).size == 256 * MIB


async def test_files__compressed_bomb_uses_constant_memory(engine, shared, directory):
    compressed = gzip.compress(bytes(MIB)) * 100
    received = 0
    with grows_by_less_than(40 * MIB, pid=engine.pid):
        async with httpx.AsyncClient(timeout=60) as client:
            stored = await client.post(
                shared.upload_url(f"{directory}/zeros"),
                content=compressed,
                headers={"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"},
            )
        async for piece in await shared.files.read(f"{directory}/zeros", "stream", gzip=True):
            received += len(piece)
    assert (stored.status_code, received) == (200, 100 * MIB)


async def test_files__missing_file_is_not_found(shared, directory):
    for form in ("text", "bytes", "stream"):
        with pytest.raises(FileNotFoundException, match=f"'{directory}/none' does not exist"):
            await shared.files.read(f"{directory}/none", format=form)
