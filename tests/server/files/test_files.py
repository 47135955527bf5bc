import asyncio
import io
import os
import tarfile
from dataclasses import replace

import httpx
import pytest

from sandbox_server.app import create_app
from sandbox_server.db.locks import Locks
from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.files.contents import FileContents
from sandbox_server.files.path_locks import PathLocks
from sandbox_server.files.tree import FileTree
from tests.docs.blocks import BY_HTTP
from tests.engine.polling import until
from tests.server.http.test_problems import assert_problem
from tests.server.support.event_reader import following
from tests.server.support.socket_server import serving

pytestmark = pytest.mark.needs_engine

MEGABYTE = 2**20


class Files:
    """Files of one sandbox over HTTP."""

    def __init__(self, api, sandbox_id):
        self.api = api
        self.sandbox_id = sandbox_id
        self.url = f"/v1/sandboxes/{sandbox_id}/files"

    async def put(self, path, content, *, headers=None, **params):
        return await self.api.put(
            f"{self.url}/content", params={"path": path, **params}, content=content, headers=headers
        )

    async def get(self, path, *, headers=None, **params):
        return await self.api.get(
            f"{self.url}/content", params={"path": path, **params}, headers=headers
        )

    async def delete(self, path, *, headers=None, **params):
        return await self.api.delete(
            f"{self.url}/content", params={"path": path, **params}, headers=headers
        )

    async def list(self, path, **params):
        return await self.api.get(self.url, params={"path": path, **params})

    async def names(self, path):
        return [item["name"] for item in (await self.list(path)).json()["items"]]

    async def run(self, command):
        ran = await self.api.post(
            "/sandboxes/run-command", json={"sandbox_id": self.sandbox_id, "command": command}
        )
        assert ran.json()["exit_code"] == 0, ran.text
        return ran.json()["output"]


@pytest.fixture
async def other_server(api, served, database_url):
    """Call another server, which shares only the database and the provider."""
    engine = create_engine(database_url)
    locks = Locks(create_sessions(engine))
    path_locks = PathLocks(locks)
    contents, tree = (
        FileContents(served.file_access, path_locks),
        FileTree(served.file_access, path_locks),
    )
    other = create_app(replace(served, contents=contents, tree=tree))
    async with (
        serving(other) as port,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=api.headers, timeout=120
        ) as caller,
    ):
        yield caller
    await locks.close()
    await engine.dispose()


@pytest.fixture
async def files(api):
    made = await api.post("/v1/sandboxes", json={})
    assert made.status_code == 201, made.text
    return Files(api, made.json()["id"])


async def test_download__returns_the_uploaded_content_and_etag(files):
    content = bytes(range(256)) * 4096
    made = await files.put("work/data.bin", content)
    assert (made.status_code, made.content) == (201, b"")
    told = await files.get("/home/user/work/data.bin")
    assert told.status_code == 200
    assert told.content == content
    assert told.headers["etag"] == made.headers["etag"]
    assert told.headers["last-modified"] == made.headers["last-modified"]
    head = await files.api.head(f"{files.url}/content", params={"path": "~/work/data.bin"})
    assert head.content == b""
    for name in ("etag", "content-length", "content-type", "accept-ranges"):
        assert head.headers[name] == told.headers[name], name


async def test_upload__a_replaced_file_keeps_its_mode_and_gets_a_new_etag(files):
    first = await files.put("run.sh", b"#!/bin/sh\necho 1\n")
    await files.run("chmod 750 run.sh")
    second = await files.put("run.sh", b"#!/bin/sh\necho 2\n")
    assert (first.status_code, second.status_code) == (201, 204)
    assert first.headers["etag"] != second.headers["etag"]
    assert await files.run("./run.sh; stat -c '%a %U' run.sh") == "2\n750 user\n"


async def test_upload__follows_symbolic_links(files):
    await files.put("real", b"1")
    await files.run("ln -s real link; ln -s nowhere broken; mkdir d; ln -s ../real d/up")
    assert (await files.put("d/up", b"22")).status_code == 204
    assert (await files.get("link")).content == b"22"
    assert await files.run("readlink link; cat real") == "real\n22"
    assert (await files.put("broken", b"")).json()["code"] == "path-refused"


async def test_range__parts_of_a_file_are_downloaded(files):
    etag = (await files.put("f", b"0123456789")).headers["etag"]
    part = await files.get("f", headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.content) == (206, b"234")
    assert part.headers["content-range"] == "bytes 2-4/10"
    rest = await files.get("f", headers={"Range": "bytes=7-", "If-Range": etag})
    assert (rest.status_code, rest.content) == (206, b"789")
    end = await files.get("f", headers={"Range": "bytes=-2"})
    assert (end.content, end.headers["content-range"]) == (b"89", "bytes 8-9/10")
    whole = await files.get("f", headers={"Range": "bytes=7-", "If-Range": '"other"'})
    assert (whole.status_code, whole.content) == (200, b"0123456789")
    outside = await files.get("f", headers={"Range": "bytes=10-"})
    assert_problem(outside, status=416, code="range-outside")
    assert outside.headers["content-range"] == "bytes */10"
    known = await files.get("f", headers={"If-None-Match": f'"x", {etag}'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", etag)


async def test_if_match__only_the_expected_version_is_replaced_or_deleted(files):
    old = (await files.put("f", b"1", headers={"If-None-Match": "*"})).headers["etag"]
    there = await files.put("f", b"2", headers={"If-None-Match": "*"})
    assert_problem(there, status=412, code="file-changed")
    assert there.headers["etag"] == old
    new = (await files.put("f", b"2", headers={"If-Match": old})).headers["etag"]
    for refused in (
        await files.put("f", b"3", headers={"If-Match": old}),
        await files.delete("f", headers={"If-Match": old}),
        await files.get("f", headers={"If-Match": old}),
    ):
        assert_problem(refused, status=412, code="file-changed")
        assert refused.headers["etag"] == new
    assert (await files.get("f")).content == b"2"
    missing = await files.put("absent", b"", headers={"If-Match": "*"})
    assert_problem(missing, status=412, code="file-changed")
    assert (await files.delete("f", headers={"If-Match": new})).status_code == 204
    assert "f" not in await files.names(".")


async def test_if_match__one_of_several_concurrent_writers_wins(files, other_server):
    await files.run("mkdir real; ln -s real alias")
    etag = (await files.put("real/f", b"0")).headers["etag"]
    servers = [files, Files(other_server, files.sandbox_id)]
    tries = [
        servers[number % 2].put(
            f"{where}/f", f"{number}".encode() * 100_000, headers={"If-Match": etag}
        )
        for number, where in enumerate(["real", "alias", "~/real", "~/alias", "/home/user/real"])
    ]
    answers = await asyncio.gather(*tries)
    statuses = [answer.status_code for answer in answers]
    assert sorted(statuses) == [204] + [412] * 4
    winner = statuses.index(204)
    assert (await files.get("real/f")).content == f"{winner}".encode() * 100_000
    assert await files.names("real") == ["f"]


async def test_upload__an_aborted_upload_leaves_the_old_file(files):
    await files.put("f", b"whole")

    async def breaking():
        yield b"x" * MEGABYTE
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await files.put("f", breaking())
    assert (await files.get("f")).content == b"whole"

    async def nothing_is_left():
        return await files.run("ls -A | grep upload || true") == ""

    assert await until(nothing_is_left)


async def test_download__kernel_files_pipes_and_directories_do_not_block(files):
    await files.run("mkfifo pipe; mkdir full; touch full/x")
    assert b"user" in (await files.get("/etc/passwd")).content
    kernel = await files.get("/proc/version")
    assert kernel.status_code == 200
    assert "etag" not in kernel.headers
    for path in ("pipe", "full", "/dev/null"):
        assert_problem(await files.get(path), status=409, code="path-refused")
        assert_problem(await files.put(path, b""), status=409, code="path-refused")
    for path in ("full/", "full/..", "new/"):
        assert_problem(await files.put(path, b""), status=409, code="path-refused")
    refused = await files.delete("full")
    assert_problem(refused, status=409, code="directory-not-empty")
    assert (await files.delete("full", recursive="true")).status_code == 204
    assert_problem(await files.delete("full"), status=404, code="path-not-found")


async def test_file_names__every_valid_linux_name_works_and_stays_in_its_header(files):
    for name in ('a"b\r\nSet-Cookie: x=y', "grüße 💥.txt", "-rf", "%2e%2e", "a\\..\\b;c"):
        assert (await files.put(name, name.encode())).status_code == 201, name
        told = await files.get(name)
        assert told.content == name.encode()
        assert "set-cookie" not in told.headers
        assert told.headers["content-disposition"].startswith("attachment; filename=")
        assert told.headers["content-type"] == "application/octet-stream"
        assert told.headers["x-content-type-options"] == "nosniff"
    escaped = await files.put("../../../../etc/../tmp/x", b"inside")
    assert escaped.status_code == 201
    assert await files.run("cat /tmp/x") == "inside"


@pytest.mark.parametrize("path", ["%00", "a%ff", "x" * 4096, "%e4" * 10, ""], ids=range(5))
async def test_file_names__invalid_paths_are_refused(api, path):
    answer = await api.get(f"/v1/sandboxes/{'0' * 20}/files/content?path={path}")
    assert answer.status_code in {400, 422}


async def test_upload__content_range_and_content_encoding_are_refused(files):
    for name, value in (("Content-Range", "bytes 0-1/9"), ("Content-Encoding", "gzip")):
        refused = await files.put("f", b"x", headers={name: value})
        assert_problem(refused, status=422, code="invalid-request")


async def test_list_files__is_paginated_and_sorted_by_path(files):
    await files.run("mkdir -p l/d; touch l/b l/a l/d/c; ln -s d l/e")
    whole = (await files.list("l", depth=2)).json()
    assert [item["path"].removeprefix("/home/user/l/") for item in whole["items"]] == [
        *("a", "b", "d", "d/c", "e")
    ]
    link = whole["items"][-1]
    assert (link["type"], link["symlink_target"]) == ("directory", "/home/user/l/d")
    told, cursor = [], None
    for _ in range(3):
        given: dict[str, str] = {} if cursor is None else {"cursor": cursor}
        part = (await files.list("l", depth=2, limit=2, **given)).json()
        told += part["items"]
        cursor = part["next_cursor"]
    assert cursor is None
    assert told == whole["items"]
    assert_problem(await files.list("l/a"), status=409, code="path-refused")
    assert_problem(await files.list("none"), status=404, code="path-not-found")


async def test_move_file__moves_files_and_mkdir_creates_directories(files):
    await files.put("a", b"a")
    await files.put("b", b"b")
    moved = await files.api.post(f"{files.url}/move", json={"from": "a", "to": "x/y/b"})
    assert (moved.status_code, moved.json()["path"]) == (200, "/home/user/x/y/b")
    assert (await files.get("x/y/b")).content == b"a"
    gone = await files.api.post(f"{files.url}/move", json={"from": "a", "to": "c"})
    assert_problem(gone, status=404, code="path-not-found")
    made = [await files.api.post(f"{files.url}/mkdir", json={"path": "m/n"}) for _ in range(2)]
    assert [answer.status_code for answer in made] == [201, 200]
    assert made[0].json() == made[1].json()
    refused = await files.api.post(f"{files.url}/mkdir", json={"path": "b"})
    assert_problem(refused, status=409, code="path-refused")


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
async def test_archive__a_directory_is_downloaded_and_uploaded(files, kind):
    await files.run(
        "mkdir -p p/q; printf 1 > p/one; printf 2 > p/q/two; ln -s one p/link; chmod 700 p/q"
    )
    packed = await files.api.get(f"{files.url}/archive", params={"path": "p", "format": kind})
    assert packed.status_code == 200
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as archive:
        assert sorted(archive.getnames()) == [".", "./link", "./one", "./q", "./q/two"]
    put = await files.api.put(
        f"{files.url}/archive", params={"path": "new/location"}, content=packed.content
    )
    assert put.status_code == 204, put.text
    assert (
        await files.run("cat new/location/link new/location/q/two; stat -c %a new/location/q")
        == "12700\n"
    )
    assert await files.run("ls -A /tmp | grep archive || true") == ""


async def test_archive__members_outside_the_directory_are_refused(files):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in ("good", "../outside", "/etc/cron.d/evil"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"evil"))
    put = await files.api.put(
        f"{files.url}/archive", params={"path": "d"}, content=content.getvalue()
    )
    problem = assert_problem(put, status=422, code="archive-failed")
    assert "outside" in problem["detail"]
    assert await files.run("ls d; ls outside /etc/cron.d/evil 2>/dev/null || true") == "etc\ngood\n"
    broken = await files.api.put(f"{files.url}/archive", params={"path": "e"}, content=b"no tar")
    assert_problem(broken, status=422, code="archive-failed")


async def test_file_user__files_belong_to_the_given_user(files):
    await files.put("/root/secret", b"s", user="root")
    assert await files.run("sudo stat -c %U /root/secret") == "root\n"
    unknown = await files.get("x", user="nobody-there")
    assert unknown.status_code == 422


async def test_auto_resume__file_operations_resume_a_paused_sandbox(files):
    await files.put("f", b"kept")
    await files.api.post(f"/v1/sandboxes/{files.sandbox_id}/pause")
    assert (await files.get("f")).content == b"kept"


async def test_download__an_aborted_download_frees_its_resources(files):
    await files.run("truncate -s 1G large")
    client = files.api
    async with client.stream("GET", f"{files.url}/content", params={"path": "large"}) as answer:
        assert int(answer.headers["content-length"]) == 1024 * MEGABYTE
        await anext(answer.aiter_raw())
    assert (await files.get("large", headers={"Range": "bytes=-1"})).content == b"\0"


async def test_upload__without_a_content_length_may_have_any_size(files):
    async def parts():
        for _ in range(20):
            yield b"x" * MEGABYTE

    assert (await files.put("large", parts())).status_code == 201
    assert await files.run("stat -c %s large") == f"{20 * MEGABYTE}\n"


async def test_watch_files__streams_changes_until_the_sandbox_pauses(files):
    await files.run("mkdir -p w/d; touch w/old")
    params = {"path": "w", "recursive": "true"}
    async with (
        asyncio.timeout(60),
        following(files.api, f"{files.url}/watch", params=params) as told,
    ):
        await files.put("w/d/new", b"1")
        await files.run("chmod 600 w/old; rm w/old")
        happened: dict[str, str] = {}
        while happened.get("old") != "removed":
            event = await anext(told)
            happened[event.data["path"]] = event.data["type"]
        assert happened["d/new"] in {"created", "chmod", "written"}
        await files.api.post(f"/v1/sandboxes/{files.sandbox_id}/pause")
        ended = await told.until("ended")
        assert ended.data["reason"].startswith("The sandbox is paus")
    again = {"Last-Event-ID": "ended"}
    over = await files.api.get(f"{files.url}/watch", params=params, headers=again)
    assert over.status_code == 204
    row = (await files.api.get(f"/v1/sandboxes/{files.sandbox_id}")).json()
    assert row["state"] == "paused"


async def test_watch_files__a_path_that_is_not_a_directory_is_refused(files):
    for path, status in (("none", 404), (".bashrc", 409)):
        answer = await files.api.get(f"{files.url}/watch", params={"path": path})
        assert answer.status_code == status


async def test_docs__the_examples_of_files_work(files, tmp_path):
    section = BY_HTTP.read_text().partition("\n## Files\n")[2]
    script = section.partition("```sh\n")[2].partition("```")[0]
    key, server = files.api.headers["x-api-key"], str(files.api.base_url).rstrip("/")
    shell = await asyncio.create_subprocess_exec(
        *("sh", "-euxc", script.replace("curl ", "curl -sS --fail-with-body ")),
        env=os.environ | {"KEY": key, "SERVER": server, "ID": files.sandbox_id},
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await shell.communicate()
    assert shell.returncode == 0, said.decode()
    assert b"\nhell+ curl" in said
    assert await files.names("copy") == ["notes.md"]
    assert_problem(await files.get("work/notes.md"), status=404, code="path-not-found")
