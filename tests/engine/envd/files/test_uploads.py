import gzip
import os
import zlib
from pathlib import Path

import pytest

from sandbox_engine.rootfs.ownership import UID_BASE
from tests.engine.envd.file_tree import names

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

MIB = 1 << 20
OCTETS = {"content-type": "application/octet-stream"}


async def post(http, path, content, *, username=None, **headers):
    params = {"path": path} if username is None else {"path": path, "username": username}
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.post("/files", params=params, content=content, headers=OCTETS | headers)


def attributes(file):
    return {name: os.getxattr(file, name).decode() for name in os.listxattr(file)}


async def pieces(*content):
    for piece in content:
        yield piece


# What is stored, and where


async def test_upload__creates_a_user_file_with_its_directories(http, home):
    answer = await post(http, "a/b/file.txt", b"text")
    assert (answer.status_code, answer.json()) == (
        200,
        [{"name": "file.txt", "path": "/home/user/a/b/file.txt", "type": "file"}],
    )
    file = home / "a/b/file.txt"
    assert file.read_text() == "text"
    for made, mode in ((home / "a", 0o40755), (file, 0o100644)):
        status = made.stat()
        assert (status.st_mode, status.st_uid) == (mode, UID_BASE + 1000)


async def test_upload__root_upload_belongs_to_root(http, box):
    answer = await post(http, "file", b"text", username="root")
    assert answer.json()[0]["path"] == "/root/file"
    assert (box.inside / "root/file").stat().st_uid == UID_BASE


async def test_upload__existing_file_keeps_its_inode(http, box, home):
    box.run("echo a longer text than the new one > file; chmod 600 file; ln file link", uid=1000)
    os.chown(home / "file", UID_BASE, UID_BASE)
    before = (home / "file").stat()
    with (home / "file").open() as reader:
        await post(http, "file", b"new")
        assert reader.read() == "new"
    after = (home / "file").stat()
    assert (home / "link").read_text() == "new"
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert after.st_uid == UID_BASE + 1000


async def test_upload__writes_through_a_link(http, box, home):
    box.run("echo old > file; ln -s file link; ln -s missing dangling", uid=1000)
    await post(http, "link", b"new")
    await post(http, "dangling", b"new")
    assert (home / "link").is_symlink()
    assert (home / "file").read_text() == (home / "missing").read_text() == "new"


@pytest.mark.parametrize("name", ["new\nline", "q?a=b&c#d", "ä ö", "-rf", "%41", "x" * 255])
async def test_upload__all_kinds_of_names_work(http, home, name):
    assert (await post(http, name, b"1")).status_code == 200
    assert (home / name).read_text() == "1"
    answer = await http.post("/files", files=[("file", (name, b"2"))])
    assert answer.json()[0]["name"] == name
    assert (home / name).read_text() == "2"


@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 5 * MIB + 3])
@pytest.mark.parametrize("compressed", [False, True])
async def test_upload__bodies_of_every_size_arrive_complete(http, home, size, compressed):
    content = (os.urandom(MIB // 2) + bytes(MIB // 2)) * 6
    content = content[:size]
    if compressed:
        await post(http, "file", gzip.compress(content), content_encoding="gzip")
    else:
        await post(http, "file", content)
    assert (home / "file").read_bytes() == content


async def test_upload__large_body_uses_constant_memory(http, home):
    async def large():
        for _ in range(256):
            yield piece

    piece = bytes(MIB)
    before = _resident()
    answer = await post(http, "large", large())
    assert answer.status_code == 200
    assert (home / "large").stat().st_size == 256 * MIB
    assert _resident() - before < 24 * MIB


async def test_upload__endlessly_expanding_body_uses_constant_memory(http, home):
    bomb = zlib.compressobj(9, wbits=31)
    content = b"".join(bomb.compress(bytes(MIB)) for _ in range(200)) + bomb.flush()
    assert len(content) < MIB
    before = _resident()
    await post(http, "bomb", content, content_encoding="gzip")
    assert (home / "bomb").stat().st_size == 200 * MIB
    assert _resident() - before < 24 * MIB


async def test_upload__compressed_body_may_have_several_members(http, home):
    content = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    await post(http, "file", pieces(content[:5], content[5:]), content_encoding="gzip")
    assert (home / "file").read_text() == "one two"


# Forms


async def test_upload__form_stores_all_files(http, home):
    answer = await http.post(
        "/files",
        data={"comment": "skipped"},
        files=[
            ("file", ("a.txt", b"one")),
            ("other", ("c.txt", b"skipped")),
            ("file", ("deep/b.txt", b"two")),
            ("file", ("/home/user/~c", b"three")),
            ("file", ('say "hi"', b"four")),
        ],
    )
    assert [entry["path"] for entry in answer.json()] == [
        "/home/user/a.txt",
        "/home/user/deep/b.txt",
        "/home/user/~c",
        '/home/user/say "hi"',
    ]
    assert names(home) == ["a.txt", "deep", 'say "hi"', "~c"]
    assert (home / "deep/b.txt").read_text() == "two"


async def test_upload__query_path_overrides_the_form_name(http, home):
    await http.post("/files", params={"path": "x"}, files=[("file", ("y", b"text"))])
    assert names(home) == ["x"]


async def test_upload__boundary_lookalike_is_content(http, home):
    content = b"\r\n--boundary\r\n--b\r\n\r\n--" * 1000
    head = b'--b0undary\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    body = head + content + b"\r\n--b0undary--\r\n"
    for size in (1, 7, len(body)):
        chunks = [body[at : at + size] for at in range(0, len(body), size)]
        answer = await http.post(
            "/files",
            content=pieces(*chunks),
            headers={"content-type": "multipart/form-data; boundary=b0undary"},
        )
        assert answer.status_code == 200
        assert (home / "f").read_bytes() == content


async def test_upload__duplicate_path_is_stored_once(http, home):
    answer = await http.post(
        "/files", files=[("file", ("a", b"1")), ("file", ("b", b"2")), ("file", ("./a", b"3"))]
    )
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        (
            "you cannot upload multiple files to the same path '/home/user/a' in one upload "
            "request, only the first specified file was uploaded, also the following files were "
            "uploaded: /home/user/b"
        ),
    )
    assert (home / "a").read_text() == "1"


async def test_upload__form_without_files_stores_nothing(http, home):
    answer = await http.post("/files", files=[("other", ("a", b"1"))])
    assert (answer.status_code, answer.json()) == (200, [])
    assert names(home) == []


# Metadata


async def test_upload__metadata_is_replaced_as_a_whole(http, client, home):
    answer = await post(http, "file", b"", X_Metadata_Colour="red", X_Metadata_Shape="round")
    assert answer.json()[0]["metadata"] == {"colour": "red", "shape": "round"}
    assert attributes(home / "file") == {"user.e2b.colour": "red", "user.e2b.shape": "round"}
    os.setxattr(home / "file", "user.other", b"kept")
    await post(http, "file", b"", X_Metadata_Colour="blue")
    assert attributes(home / "file") == {"user.e2b.colour": "blue", "user.other": "kept"}
    assert "metadata" not in (await post(http, "file", b"")).json()[0]
    assert attributes(home / "file") == {"user.other": "kept"}


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([("x-metadata-" + "k" * 247, "v")], "exceeds 246 bytes"),
        ([("x-metadata-k", "a\tb")], 'value for key "k" contains non-printable-ASCII byte 0x09'),
        ([("x-metadata-k", b"\xff")], "byte 0xff at offset 0"),
        ([("x-metadata-a", "v" * 4000), ("x-metadata-b", "v" * 90)], "total metadata size 4110"),
    ],
)
async def test_upload__invalid_metadata_is_rejected_first(http, box, home, headers, text):
    box.write("/home/user/file", "old")
    answer = await http.post(
        "/files?path=file", content=b"new", headers=[*OCTETS.items(), *headers]
    )
    assert answer.status_code == 400
    assert text in answer.json()["message"]
    assert (home / "file").read_text() == "old"


# Composing


async def test_upload__compose_concatenates_and_removes_the_sources(http, box, home):
    box.run("echo one > a; echo two > b; echo old > whole", uid=1000)
    answer = await http.post(
        "/files/compose",
        json={"source_paths": ["a", "~/b", "a"], "destination": "whole"},
    )
    assert (answer.status_code, answer.json()) == (
        200,
        {"path": "/home/user/whole", "name": "whole", "type": "file"},
    )
    assert names(home) == ["whole"]
    assert (home / "whole").read_text() == "one\ntwo\none\n"
    assert (home / "whole").stat().st_uid == UID_BASE + 1000


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 400, "invalid request body"),
        pytest.param(b"[" * 100_000, 400, "invalid request body", id="deep"),
        (b'{"source_paths": "a", "destination": "x"}', 400, "invalid request body"),
        (b'{"source_paths": [], "destination": "x"}', 400, "source_paths must not be empty"),
        (b'{"source_paths": ["a"], "destination": ""}', 400, "destination is required"),
        (b'{"source_paths": ["a", "./x"], "destination": "x"}', 400, "same as destination"),
        (b'{"source_paths": ["a", "no"], "destination": "x"}', 404, "source file not found"),
        (b'{"source_paths": ["a", "dir"], "destination": "x"}', 400, "not a regular file"),
        (b'{"source_paths": ["a", "/dev/null"], "destination": "x"}', 400, "not a regular file"),
        (b'{"source_paths": ["a"], "destination": "dir"}', 500, "is a directory"),
        (b'{"source_paths": ["a"], "destination": "x", "username": "who"}', 401, "unknown user"),
        (b'{"source_paths": ["a", "big"], "destination": "/small/x"}', 507, "disk space"),
    ],
)
async def test_upload__failed_compose_changes_nothing(http, box, home, body, status, text):
    box.run("echo one > a; mkdir dir; truncate -s 9M big", uid=1000)
    answer = await http.post("/files/compose", content=body)
    assert answer.status_code == status
    assert text in answer.json()["message"]
    assert names(home) == ["a", "big", "dir"]
    assert names(box.inside / "small") == []


def _resident():
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
