import asyncio
import gzip
import os

import httpx
import pytest

from tests.engine.bare_container import descriptors, eventually
from tests.engine.envd.file_tree import answering, file_box, names

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

MIB = 1 << 20
OCTETS = {"content-type": "application/octet-stream"}


async def post(http, path, content, *, username=None, **headers):
    params = {"path": path} if username is None else {"path": path, "username": username}
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.post("/files", params=params, content=content, headers=OCTETS | headers)


async def pieces(*content):
    for piece in content:
        yield piece


@pytest.mark.parametrize("path", ["file", "new"])
@pytest.mark.parametrize(
    ("length", "sent"),
    [
        (f"Content-Length: {8 * MIB}", bytes(3 * MIB)),
        ("Transfer-Encoding: chunked", b"100000\r\n" + bytes(MIB) + b"\r\n"),
    ],
)
async def test_failed_upload__aborted_upload_keeps_the_old_file(box, url, home, path, length, sent):
    box.write("/home/user/file", "old")
    _, writer = await _connect(url)
    writer.write(_head(path, length) + sent)
    await eventually(lambda: _is_spooling(box))
    writer.close()
    await writer.wait_closed()
    await eventually(lambda: not _is_spooling(box))
    assert names(home) == ["file"]
    assert (home / "file").read_text() == "old"


@pytest.mark.parametrize(
    ("content", "encoding", "text"),
    [
        (b"no gzip", "gzip", "gzip: "),
        (b"", "gzip", "gzip: unexpected EOF"),
        (gzip.compress(b"new")[:-3], "gzip", "gzip: unexpected EOF"),
        (gzip.compress(b"new")[:-3] + b"xyz", "gzip", "gzip: "),
        (gzip.compress(os.urandom(3 * MIB))[:-9], "gzip", "gzip: "),
        (b"new", "br", "unsupported Content-Encoding: br, supported: [gzip]"),
    ],
    ids=["plain", "empty", "cut off", "altered", "large and cut off", "other encoding"],
)
async def test_failed_upload__undecodable_body_changes_nothing(
    http, box, home, content, encoding, text
):
    box.write("/home/user/file", "old")
    answer = await post(http, "file", content, content_encoding=encoding)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(f"error decompressing request body: {text}")
    assert (home / "file").read_text() == "old"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no form",
        b"--b\r\nContent-Disposition: form-data; name=file; filename=new\r\n\r\ncut off",
        b"--b\r\nContent-Disposition: form-data; name=file; filename=new\r\n\r\nx\r\n--b\r\n",
        b"--b\r\nContent Disposition\r\n\r\n",
        b"--b\r\n" + b"x" * 70_000,
    ],
    ids=["empty", "no form", "cut off", "not ended", "bad header", "long header"],
)
async def test_failed_upload__malformed_form_is_rejected(http, home, body):
    answer = await http.post(
        "/files", content=body, headers={"content-type": "multipart/form-data; boundary=b"}
    )
    assert answer.status_code == 400
    assert "form" in answer.json()["message"]
    assert names(home) in ([], ["new"])


async def test_failed_upload__full_disk_keeps_the_old_file(http, box):
    old = os.urandom(3 * MIB)
    box.write("/small/file", old)
    os.link(box.inside / "small/file", box.inside / "small/link")
    for path, content in (
        ("/small/new", bytes(2 * MIB)),
        ("/small/file", bytes(5 * MIB)),
        ("/small/made/new", pieces(*[bytes(MIB)] * 3)),
        ("/small/file", pieces(*[bytes(MIB)] * 5)),
    ):
        answer = await post(http, path, content)
        assert (answer.status_code, answer.json()["code"]) == (507, 507)
        assert "not enough disk space available" in answer.json()["message"]
    assert (box.inside / "small/link").read_bytes() == old
    assert names(box.inside / "small") == ["file", "link"]
    free = os.statvfs(box.inside / "small")
    assert free.f_bfree * free.f_frsize == MIB
    assert (await post(http, "/small/file", bytes(4 * MIB))).status_code == 200


async def test_failed_upload__lost_disk_space_is_noticed_before_the_file_is_changed(http, box):
    box.write("/small/file", "old")

    async def content():
        yield bytes(2 * MIB)
        await eventually(lambda: _is_spooling(box))
        (box.inside / "small/hog").write_bytes(bytes(3 * MIB))

    answer = await post(http, "/small/file", content())
    assert (answer.status_code, answer.json()["message"]) == (
        507,
        f"attempted to write {2 * MIB} bytes: not enough disk space available",
    )
    assert (box.inside / "small/file").read_text() == "old"
    hog = (box.inside / "small/hog").stat()
    free = os.statvfs(box.inside / "small")
    assert free.f_bfree * free.f_frsize == 4 * MIB - hog.st_blocks * 512 - 4096


async def test_failed_upload__waiting_bodies_share_the_free_space(box, http):
    release = asyncio.Event()

    async def slow():
        yield bytes(2 * MIB)
        await release.wait()

    first = asyncio.create_task(post(http, "/small/a", slow()))
    await eventually(lambda: _is_spooling(box))
    second = await post(http, "/small/b", pieces(*[bytes(MIB)] * 4))
    release.set()
    assert second.status_code == 507
    assert (await first).status_code == 200


async def test_failed_upload__concurrent_uploads_to_one_path_do_not_mix(http, home):
    contents = [bytes([number]) * (2 * MIB) for number in range(6)]
    await asyncio.gather(*(post(http, "file", content) for content in contents))
    assert (home / "file").read_bytes() in contents


# What is refused


@pytest.mark.parametrize(
    ("params", "headers", "status", "text"),
    [
        ({}, OCTETS, 400, "path query parameter is required for raw body upload"),
        ({"path": ""}, OCTETS, 400, "path is a directory: /home/user"),
        ({"path": "dir"}, OCTETS, 400, "path is a directory: /home/user/dir"),
        ({"path": "file/x"}, OCTETS, 500, "not a directory"),
        ({"path": "pipe"}, OCTETS, 400, "not a regular file"),
        ({"path": "/dev/null"}, OCTETS, 400, "not a regular file"),
        ({"path": "/proc/1/comm"}, OCTETS, 400, "run a command"),
        ({"path": "/sys/new"}, OCTETS, 400, "run a command"),
        ({"path": "/proc/1/root/home/user/x"}, OCTETS, 500, "symbolic links"),
        ({"path": "a\0b"}, OCTETS, 400, "invalid characters"),
        ({"path": "x" * 256}, OCTETS, 500, "file name too long"),
        ({"path": "x", "username": "who"}, OCTETS, 401, "unknown user who"),
        (
            {"path": "x"},
            {"content-type": "text/plain"},
            400,
            "unsupported content type: text/plain",
        ),
        ({"path": "x"}, {}, 400, "unsupported content type: "),
    ],
)
async def test_failed_upload__invalid_uploads_are_rejected_and_change_nothing(
    http, box, home, params, headers, status, text
):
    box.run("mkdir dir; echo old > file; mkfifo pipe", uid=1000)
    async with asyncio.timeout(5):
        answer = await http.post("/files", params=params, content=b"new", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, status)
    assert text in answer.json()["message"]
    assert names(home) == ["dir", "file", "pipe"]
    assert (home / "file").read_text() == "old\n"


async def test_failed_upload__rejection_precedes_the_body(box, url):
    reader, writer = await _connect(url)
    writer.write(_head("/small/file", f"Content-Length: {1 << 40}"))
    async with asyncio.timeout(5):
        assert (await reader.readline()).startswith(b"HTTP/1.1 507 ")
    writer.close()
    await writer.wait_closed()


async def test_failed_upload__upload_to_a_deleted_sandbox_is_rejected():
    with file_box() as box:
        async with answering(box) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
            box.root.close()
            answer = await post(http, "file", b"text")
    assert (answer.status_code, answer.json()["sandboxId"]) == (502, "box")


async def _connect(url):
    return await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))


def _head(path, length):
    lines = [
        f"POST /files?path={path} HTTP/1.1",
        "Host: x",
        "Content-Type: application/octet-stream",
    ]
    return "\r\n".join([*lines, length, "", ""]).encode()


def _is_spooling(box):
    return any(place.startswith(str(box.spool_dir)) for place in descriptors(os.getpid()))
