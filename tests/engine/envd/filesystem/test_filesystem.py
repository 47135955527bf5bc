import asyncio
import base64
import gzip
import os
import socket

import httpx
import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.filesystem.filesystem_pb import (
    FileType,
    ListDirRequest,
    MakeDirRequest,
    MoveRequest,
    RemoveRequest,
    StatRequest,
)

from sandbox_engine.envd.filesystem.operations import UserFiles
from sandbox_engine.rootfs.ownership import UID_BASE
from tests.engine.envd.file_tree import names

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

MIB = 1 << 20


def basic(user):
    return {"authorization": "Basic " + base64.b64encode(f"{user}:".encode()).decode()}


async def stat(client, path):
    return (await client.stat(StatRequest(path=path))).entry


async def listed(client, path, *, depth=1):
    response = await client.list_dir(ListDirRequest(path=path, depth=depth))
    return [entry.path for entry in response.entries]


@pytest.fixture
def workdir(box):
    """Give the box's template a working directory, with one file in it."""
    box.run("mkdir -p /tmp/work; touch /tmp/work/only; touch x", uid=1000)
    box.default_workdir = "/tmp/work"
    yield box.default_workdir
    box.default_workdir = ""


async def test_filesystem__a_file_is_described_with_its_owner_and_permissions(client, box, home):
    box.write("/home/user/file", "text").chmod(0o4751)
    os.setxattr(home / "file", "user.e2b.colour", b"red")
    os.setxattr(home / "file", "user.e2b.bytes", b"\xff")
    os.setxattr(home / "file", "user.other", b"no")
    entry = await stat(client, "file")
    assert (entry.name, entry.path, entry.type) == ("file", "/home/user/file", FileType.FILE)
    assert (entry.size, entry.mode, entry.permissions) == (4, 0o751, "urwxr-x--x")
    assert (entry.owner, entry.group) == ("user", "user")
    assert entry.modified_time.to_datetime().timestamp() == pytest.approx(
        (home / "file").stat().st_mtime, abs=1e-3
    )
    assert entry.metadata == {"colour": "red"}
    assert not entry.is_symlink
    assert not entry.has_field("symlink_target")


async def test_filesystem__a_link_is_described_by_what_it_leads_to(client, box):
    box.run("mkdir -m 750 dir; ln -s dir link; ln -s link/ chain; ln -s nowhere broken", uid=1000)
    for name in ("link", "chain"):
        entry = await stat(client, name)
        assert (entry.is_symlink, entry.type) == (True, FileType.DIRECTORY)
        assert (entry.symlink_target, entry.mode) == ("/home/user/dir", 0o750)
        assert entry.permissions == "Lrwxrwxrwx"
    broken = await stat(client, "broken")
    assert (broken.is_symlink, broken.type, broken.mode) == (True, FileType.UNSPECIFIED, 0)
    assert broken.symlink_target == "/home/user/broken"


@pytest.mark.parametrize(
    ("path", "kind", "permissions"),
    [
        ("/", FileType.DIRECTORY, "drwxr-xr-x"),
        ("/tmp", FileType.DIRECTORY, "dtrwxrwxrwx"),
        ("/dev/null", FileType.UNSPECIFIED, "Dcrw-rw-rw-"),
        ("/proc/version", FileType.FILE, "-r--r--r--"),
    ],
)
async def test_filesystem__other_file_types_are_described(client, path, kind, permissions):
    entry = await stat(client, path)
    assert (entry.path, entry.type, entry.permissions) == (path, kind, permissions)


async def test_filesystem__pipes_and_sockets_are_described_at_once(client, home):
    os.mkfifo(home / "pipe", 0o600)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "socket"))
    async with asyncio.timeout(5):
        assert (await stat(client, "pipe")).permissions == "prw-------"
        assert (await stat(client, "socket")).permissions == "Srwxr-xr-x"
        assert await listed(client, "") == ["/home/user/pipe", "/home/user/socket"]


async def test_filesystem__invalid_text_in_names_is_replaced(client, home):
    (home / os.fsdecode(b"bad\xff")).write_text("")
    (home / "new\nline").write_text("")
    (home / "file").write_text("")
    os.utime(home / "file", (0, 2**40))
    entries = (await client.list_dir(ListDirRequest(path="~"))).entries
    assert [entry.name for entry in entries] == ["bad�", "file", "new\nline"]


async def test_filesystem__listing_has_the_requested_depth_and_path(client, box):
    box.run("mkdir -p real/a/b; touch real/a/b/c real/z; ln -s real link", uid=1000)
    assert await listed(client, "link") == ["/home/user/link/a", "/home/user/link/z"]
    assert await listed(client, "link", depth=0) == await listed(client, "link")
    assert await listed(client, "link", depth=3) == [
        "/home/user/link/a",
        "/home/user/link/a/b",
        "/home/user/link/a/b/c",
        "/home/user/link/z",
    ]


async def test_filesystem__listing_the_root_skips_kernel_file_systems(client):
    found = await listed(client, "/", depth=2)
    assert {"/proc", "/sys", "/dev", "/dev/null", "/home/user"} <= set(found)
    assert not any(path.startswith(("/proc/", "/sys/")) for path in found)


async def test_filesystem__listing_is_equal_in_both_encodings(url, client, box):
    box.run("touch a; ln -s a b", uid=1000)
    request = ListDirRequest(path="~")
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        answer = await http.post(
            "/filesystem.Filesystem/ListDir",
            content=request.to_json(),
            headers={"content-type": "application/json"},
        )
    response = await client.list_dir(request)
    assert type(response).from_json(answer.content) == response


async def test_filesystem__too_large_listing_is_rejected(box, home):
    for number in range(20):
        (home / str(number)).write_text("")
    with pytest.raises(ConnectError, match="too many entries") as refused:
        UserFiles(box, None).list("~", depth=1, limit=10_000)
    assert refused.value.code is Code.RESOURCE_EXHAUSTED


async def test_filesystem__directory_is_created_with_its_parents(client, home):
    entry = (await client.make_dir(MakeDirRequest(path="a/b/c"))).entry
    assert (entry.path, entry.owner, entry.permissions) == (
        "/home/user/a/b/c",
        "user",
        "drwxr-xr-x",
    )
    assert (home / "a").stat().st_uid == UID_BASE + 1000


async def test_filesystem__rename_replaces_and_creates_parents(client, box, home):
    box.run("echo old > a; echo other > b", uid=1000)
    await client.move(MoveRequest(source="a", destination="b"))
    assert (home / "b").read_text() == "old\n"
    entry = (await client.move(MoveRequest(source="b", destination="new/c"))).entry
    assert (entry.path, entry.size) == ("/home/user/new/c", 4)
    assert names(home) == ["new"]


async def test_filesystem__removal_is_recursive_and_idempotent(client, box, home):
    box.run("mkdir -p tree/a/b; touch tree/a/b/c", uid=1000)
    for _ in range(2):
        await client.remove(RemoveRequest(path="tree"))
    await client.remove(RemoveRequest(path="never/was"))
    assert names(home) == []


@pytest.mark.parametrize(
    ("method", "request_", "code", "text"),
    [
        ("stat", StatRequest(path="no"), Code.NOT_FOUND, "file not found: lstat /home/user/no"),
        ("stat", StatRequest(path="file/x"), Code.INTERNAL, "not a directory"),
        ("stat", StatRequest(path="a\0b"), Code.INVALID_ARGUMENT, "invalid characters"),
        ("stat", StatRequest(path="~root/x"), Code.INVALID_ARGUMENT, "user-specific home dir"),
        ("stat", StatRequest(path="x" * 300), Code.INTERNAL, "file name too long"),
        ("list_dir", ListDirRequest(path="no"), Code.NOT_FOUND, "path not found"),
        ("list_dir", ListDirRequest(path="file"), Code.INVALID_ARGUMENT, "is not a directory"),
        ("list_dir", ListDirRequest(path="loop"), Code.FAILED_PRECONDITION, "cyclic symlink"),
        ("list_dir", ListDirRequest(path="/proc"), Code.INVALID_ARGUMENT, "run a command"),
        ("make_dir", MakeDirRequest(path="dir"), Code.ALREADY_EXISTS, "directory already exists"),
        ("make_dir", MakeDirRequest(path="file"), Code.INVALID_ARGUMENT, "not a directory"),
        ("make_dir", MakeDirRequest(path="file/x"), Code.INTERNAL, "not a directory"),
        ("make_dir", MakeDirRequest(path="/sys/x"), Code.INVALID_ARGUMENT, "run a command"),
        (
            "move",
            MoveRequest(source="no", destination="x"),
            Code.NOT_FOUND,
            "source file not found: rename /home/user/no /home/user/x",
        ),
        ("move", MoveRequest(source="file", destination="dir"), Code.INTERNAL, "is a directory"),
        ("move", MoveRequest(source="file", destination="/small/x"), Code.INTERNAL, "cross-device"),
        ("move", MoveRequest(source="/", destination="x"), Code.INVALID_ARGUMENT, "renaming"),
        ("remove", RemoveRequest(path="/"), Code.INVALID_ARGUMENT, "removing"),
        ("remove", RemoveRequest(path="/small"), Code.INTERNAL, "resource busy"),
    ],
)
async def test_filesystem__invalid_input_is_rejected_and_changes_nothing(
    client, box, home, method, request_, code, text
):
    box.run("mkdir dir; touch file; ln -s loop loop", uid=1000)
    with pytest.raises(ConnectError, match=text) as refused:
        await getattr(client, method)(request_)
    assert refused.value.code is code
    assert names(home) == ["dir", "file", "loop"]


async def test_filesystem__user_determines_home_and_ownership(client, box):
    made = await client.make_dir(MakeDirRequest(path="of-root"), headers=basic("root"))
    assert (made.entry.path, made.entry.owner) == ("/root/of-root", "root")
    await client.remove(RemoveRequest(path="of-root"), headers=basic("root"))


async def test_filesystem__unknown_user_is_rejected(client):
    with pytest.raises(ConnectError, match="invalid username: '1000'") as refused:
        await client.stat(StatRequest(path="/"), headers=basic("1000"))
    assert refused.value.code is Code.UNAUTHENTICATED


async def test_filesystem__missing_default_user_is_reported(client, box):
    passwd = box.inside / "etc/passwd"
    before = passwd.read_text()
    passwd.write_text("root:x:0:0::/root:/bin/sh\n")
    try:
        with pytest.raises(ConnectError, match="invalid default user: 'user'"):
            await client.stat(StatRequest(path="/"))
    finally:
        passwd.write_text(before)


@pytest.mark.parametrize(
    "body",
    [b"{", b'{"path": 5}', b"[]", b"\xff", b"[" * 100_000, b"[" + b"[]," * (2 * MIB)],
    ids=["cut off", "wrong type", "list", "no text", "deep", "wide"],
)
async def test_filesystem__malformed_request_is_a_client_error(url, client, body):
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        answer = await http.post(
            "/filesystem.Filesystem/Stat",
            content=body,
            headers={"content-type": "application/json"},
        )
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")
    assert (await stat(client, "/")).name == "/"


async def test_filesystem__compressed_request_has_a_size_limit(url):
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        answer = await http.post(
            "/filesystem.Filesystem/Stat",
            content=gzip.compress(bytes(100 << 20)),
            headers={"content-type": "application/json", "content-encoding": "gzip"},
        )
    assert answer.json()["code"] == "resource_exhausted"


@pytest.mark.parametrize(
    ("method", "content_type", "status"),
    [
        ("GET", "application/json", 405),
        ("POST", "application/grpc", 415),
        ("POST", "text/plain", 415),
    ],
)
async def test_filesystem__other_protocols_are_rejected(url, method, content_type, status):
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        answer = await http.request(
            method, "/filesystem.Filesystem/Stat", headers={"content-type": content_type}
        )
    assert answer.status_code == status


async def test_filesystem__empty_path_is_the_home_by_default(client):
    assert (await stat(client, "")).path == "/home/user"
    as_root = await client.stat(StatRequest(path=""), headers=basic("root"))
    assert as_root.entry.path == "/root"


async def test_filesystem__empty_path_is_the_template_workdir(client, http, workdir):
    assert (await stat(client, "")).path == workdir
    assert (await stat(client, "x")).path == "/home/user/x"
    assert await listed(client, "") == [f"{workdir}/only"]
    downloaded = await http.get("/files", params={"path": ""})
    assert downloaded.json()["message"] == f"path '{workdir}' is a directory"
    uploaded = await http.post(
        "/files",
        params={"path": ""},
        content=b"",
        headers={"content-type": "application/octet-stream"},
    )
    assert uploaded.json()["message"] == f"path is a directory: {workdir}"
