import asyncio
import os
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from sandbox_engine.envd.files.ranges import InvalidRange, NoOverlap, ranges
from tests.engine.envd.file_tree import answering, file_box

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

MIB = 1 << 20
MODIFIED = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


async def get(http, path, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.get("/files", params={"path": path}, headers=headers)


# Reading


async def test_download__response_has_the_headers_browsers_need(http, box):
    os.utime(box.write("/home/user/notes.txt", "text"), (MODIFIED.timestamp(),) * 2)
    answer = await get(http, "notes.txt", origin="http://page.example")
    assert (answer.status_code, answer.text) == (200, "text")
    expected = {
        "content-type": "text/plain; charset=utf-8",
        "content-length": "4",
        "content-disposition": "inline; filename=notes.txt",
        "accept-ranges": "bytes",
        "last-modified": "Sun, 01 Mar 2026 12:00:00 GMT",
        "vary": "Accept-Encoding, Origin",
        "access-control-allow-origin": "*",
    }
    assert {name: answer.headers[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("page.html", b"", "text/html; charset=utf-8"),
        ("data.json", b"{}", "application/json"),
        ("picture.png", b"", "image/png"),
        ("archive.tar.gz", b"\x1f\x8b\x08\x00", "application/octet-stream"),
        ("README", b"plain", "text/plain; charset=utf-8"),
        ("empty", b"", "text/plain; charset=utf-8"),
        ("program", b"\x7fELF\x02\x01\x00", "application/octet-stream"),
    ],
)
async def test_download__content_type_comes_from_name_or_content(http, home, name, content, kind):
    (home / name).write_bytes(content)
    assert (await get(http, name)).headers["content-type"] == kind


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two words", 'inline; filename="two words"'),
        ('say "hi"', 'inline; filename="say \\"hi\\""'),
        ("naïve", "inline; filename*=utf-8''na%C3%AFve"),
        ("a\r\nSet-Cookie: b", "inline; filename*=utf-8''a%0D%0ASet-Cookie%3A%20b"),
        (os.fsdecode(b"\xff"), "inline; filename*=utf-8''%FF"),
    ],
)
async def test_download__file_name_cannot_break_the_header(http, home, name, shown):
    (home / name).write_text("found")
    answer = await http.get(f"/files?path={quote(name, errors='surrogateescape')}")
    assert (answer.text, answer.headers["content-disposition"]) == ("found", shown)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("no", 404, "path '/home/user/no' does not exist"),
        ("", 400, "path '/home/user' is a directory"),
        ("pipe", 400, "error opening file '/home/user/pipe': it is not a regular file"),
        ("/dev/null", 400, "error opening file '/dev/null': it is not a regular file"),
        ("file/x", 500, "error opening file '/home/user/file/x': not a directory"),
        ("a\0b", 400, "invalid characters"),
        ("~root", 400, "cannot expand user-specific home dir"),
        ("/proc/1/root/etc/shadow", 500, "too many levels of symbolic links"),
    ],
)
async def test_download__unreadable_files_are_rejected_at_once(http, box, path, status, text):
    box.run("mkfifo pipe; touch file", uid=1000)
    async with asyncio.timeout(5):
        answer = await get(http, path)
    assert (answer.status_code, answer.json()["code"]) == (status, status)
    assert text in answer.json()["message"]
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_download__users_read_their_own_home(http, box):
    (box.inside / "root/mine").write_text("root's")
    answer = await http.get("/files", params={"path": "mine", "username": "root"})
    assert answer.text == "root's"
    answer = await http.get("/files", params={"path": "mine", "username": "who"})
    assert answer.status_code == 401
    assert answer.json()["message"] == "error looking up user 'who': user: unknown user who"


async def test_download__head_request_has_no_body(http, box):
    box.write("/home/user/file", "text")
    answer = await http.head("/files", params={"path": "file"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == "4"


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 3 * MIB + 17])
async def test_download__files_of_every_size_arrive_complete(http, home, size, encoding):
    content = os.urandom(MIB) * 4
    (home / "file").write_bytes(content[:size])
    answer = await get(http, "file", accept_encoding=encoding)
    assert answer.headers.get("content-encoding", "identity") == encoding
    assert answer.content == content[:size]


async def test_download__large_file_uses_constant_memory(http, home):
    with (home / "large").open("wb") as large:
        large.truncate(256 * MIB)
    before = _resident()
    received = 0
    async with http.stream("GET", "/files", params={"path": "large"}) as answer:
        async for chunk in answer.aiter_bytes():
            received += len(chunk)
    assert received == 256 * MIB
    assert _resident() - before < 16 * MIB


async def test_download__truncated_file_breaks_the_response(http, home):
    (home / "large").write_bytes(bytes(16 * MIB))
    async with http.stream("GET", "/files", params={"path": "large"}) as answer:
        (home / "large").write_bytes(b"")
        with pytest.raises(httpx.RemoteProtocolError):
            await answer.aread()


async def test_download__response_ends_with_the_sandbox():
    with file_box() as box:
        (box.inside / "home/user/large").write_bytes(bytes(16 * MIB))
        async with answering(box) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
            headers = {"accept-encoding": "identity"}
            request = http.build_request("GET", "/files?path=large", headers=headers)
            async with asyncio.timeout(10):
                answer = await http.send(request, stream=True)
                box.root.close()
                with pytest.raises(httpx.RemoteProtocolError):
                    await answer.aread()
            answer = await http.get("/files", params={"path": "large"})
            assert (answer.status_code, answer.json()) == (
                502,
                {"sandboxId": "box", "message": "The sandbox was not found", "code": 502},
            )


# Parts and conditions


@pytest.mark.parametrize(
    ("header", "content", "shown"),
    [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=-99", b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
        ("bytes= 1 - 2", b"12", "bytes 1-2/10"),
        ("bytes=1-2, 50-60", b"12", "bytes 1-2/10"),
    ],
)
async def test_download__range_is_sent(http, home, header, content, shown):
    (home / "file").write_bytes(b"0123456789")
    answer = await get(http, "file", range=header, accept_encoding="gzip, *")
    assert (answer.status_code, answer.content) == (206, content)
    assert answer.headers["content-range"] == shown


async def test_download__multiple_ranges_are_sent_in_one_response(http, home):
    (home / "file").write_bytes(b"0123456789")
    answer = await get(http, "file", range="bytes=0-1,-2")
    kind, _, boundary = answer.headers["content-type"].partition("; boundary=")
    assert (answer.status_code, kind) == (206, "multipart/byteranges")
    parts = answer.text.split(f"\r\n--{boundary}")
    assert parts[1].startswith("\r\nContent-Range: bytes 0-1/10\r\n")
    assert [part.rpartition("\r\n\r\n")[2] for part in parts[1:3]] == ["01", "89"]
    assert parts[3] == "--\r\n"


@pytest.mark.parametrize("header", ["bytes=0-9,0-9", "bytes=0-,1-,2-"])
async def test_download__ranges_larger_than_the_file_return_the_file(http, home, header):
    (home / "file").write_bytes(b"0123456789")
    answer = await get(http, "file", range=header)
    assert (answer.status_code, answer.content) == (200, b"0123456789")


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ("bytes=10-", NoOverlap),
        ("bytes=-0", NoOverlap),
        ("bytes=5-4", InvalidRange),
        ("bytes=-", InvalidRange),
        ("bytes=a-b", InvalidRange),
        ("bytes=1", InvalidRange),
        ("bytes=--1", InvalidRange),
        ("bytes=1-99999999999999999999", InvalidRange),
        ("lines=1-2", InvalidRange),
    ],
)
async def test_download__unsatisfiable_range_is_rejected(http, home, header, error):
    with pytest.raises(error):
        ranges({"range": header}, size=10, modified=MODIFIED)
    (home / "file").write_bytes(b"0123456789")
    answer = await get(http, "file", range=header)
    assert answer.status_code == 416
    assert answer.headers.get("content-range") == ("bytes */10" if error is NoOverlap else None)


async def test_download__any_range_of_an_empty_file_is_the_file(http, home):
    (home / "file").write_bytes(b"")
    assert (await get(http, "file", range="bytes=0-3")).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"if_modified_since": 0}, 304),
        ({"if_modified_since": 1}, 304),
        ({"if_modified_since": -1}, 200),
        ({"if_unmodified_since": -1}, 412),
        ({"if_unmodified_since": 0}, 200),
        ({"if_none_match": "*"}, 304),
        ({"if_none_match": '"x"', "if_modified_since": 0}, 200),
        ({"if_match": '"x"'}, 412),
        ({"if_match": "*"}, 200),
        ({"if_modified_since": "garbage"}, 200),
        ({"range": "bytes=0-1", "if_range": 0}, 206),
        ({"range": "bytes=0-1", "if_range": -1}, 200),
        ({"range": "bytes=0-1", "if_range": '"x"'}, 200),
    ],
)
async def test_download__conditions_are_evaluated(http, box, headers, status):
    os.utime(box.write("/home/user/file", "text"), (MODIFIED.timestamp() + 0.5,) * 2)
    dated = {
        name: value if isinstance(value, str) else _date(value) for name, value in headers.items()
    }
    answer = await get(http, "file", **dated)
    assert answer.status_code == status
    assert answer.text == {200: "text", 206: "te"}.get(status, "")


async def test_download__range_is_never_compressed(http, box):
    box.write("/home/user/file", "text")
    answer = await get(http, "file", range="bytes=0-1", accept_encoding="gzip, identity;q=0")
    assert answer.status_code == 406
    assert answer.json()["message"].startswith("identity encoding not acceptable for Range")


def _date(seconds):
    return format_datetime(datetime.fromtimestamp(MODIFIED.timestamp() + seconds, UTC), usegmt=True)


def _resident():
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
