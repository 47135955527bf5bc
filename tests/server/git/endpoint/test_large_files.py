"""Git LFS: the real client against the endpoint, and what requests may not do."""

import asyncio
import json
import os
import time
from http import HTTPStatus

import httpx
import pytest

from sandbox_http.origin import HEADER, sign_origin
from tests.server.git.endpoint.conftest import ADDRESS, ENGINE_KEY, TOKEN
from tests.server.git.endpoint.test_fetch import run
from tests.server.git.git_server import PASSWORD
from tests.server.git.lfs_client import FILTER, PATH, needs_git_lfs
from tests.server.git.lfs_store import STORE_TOKEN, oid_of, pointer_of

VIDEO = os.urandom(300_000)
OBJECTS = f"/git/{ADDRESS}.git/info/lfs/objects"


@pytest.fixture
def lfs_in(git_in, tmp_path):
    """Make clients that have git-lfs."""

    def make(name="clone"):
        client = git_in(name)
        (tmp_path / "gitconfig").write_text(FILTER)
        home = {"HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}
        client.environment |= {"PATH": PATH, **home}
        return client

    return make


@pytest.fixture
def video(forge, seeded):
    """Add a large file to the repository and to the forge's store."""
    seeded.write(".gitattributes", "*.mp4 filter=lfs diff=lfs merge=lfs -text\n")
    seeded.commit("feat: film", video__mp4=pointer_of(VIDEO))
    seeded.push(forge.path("acme/widgets"), "main")
    return forge.lfs.add(VIDEO)


@pytest.fixture
async def api(place):
    """Send requests as a sandbox with its token."""

    async def open_as(sandbox):
        return httpx.AsyncClient(base_url=place.url, auth=(sandbox.id, TOKEN))

    return open_as


async def ask_batch(client, operation, *objects, **members):
    named = [{"oid": oid, "size": size} for oid, size in objects]
    asked = {"operation": operation, "objects": named, **members}
    return await client.post(f"{OBJECTS}/batch", content=json.dumps(asked))


@needs_git_lfs
async def test_lfs__clone_and_push_with_the_real_client(place, forge, video, lfs_in):
    sandbox = await place.task_sandbox()
    client = lfs_in()
    await run(client, "clone", place.remote(sandbox), ".")
    assert (client.directory / "video.mp4").read_bytes() == VIDEO
    await run(client, "checkout", "-q", "-b", "task-42")
    films = {f"film{number}__mp4": os.urandom(100_000 + number) for number in range(12)}
    await run(client, "lfs", "install", "--local")
    await asyncio.to_thread(client.commit, **films)
    await run(client, "push", "origin", "task-42")
    assert {oid_of(film) for film in films.values()} <= {*forge.lfs.contents}
    assert {*forge.lfs.verified} == {oid_of(film) for film in films.values()}
    later = lfs_in("later")  # with the credential from a helper, as sandbox_config.py writes it
    shown = (
        f'!f() {{ test "$1" = get && printf "username={sandbox.id}\\npassword={TOKEN}\\n"; }}; f'
    )
    helper = ("-c", f"credential.{place.url}.helper={shown}")
    await run(later, *helper, "clone", "--branch=task-42", f"{place.url}/git/{ADDRESS}", ".")
    assert (later.directory / "film7.mp4").read_bytes() == films["film7__mp4"]


async def test_lfs__answers_have_our_addresses_and_no_credential(place, api, video):
    sandbox = await place.plain_sandbox()
    async with await api(sandbox) as client:
        missing = oid_of(b"nothing")
        answer = await ask_batch(client, "download", (video, len(VIDEO)), (missing, 7))
        assert answer.headers["content-type"] == "application/vnd.git-lfs+json"
        assert PASSWORD not in answer.text
        assert STORE_TOKEN not in answer.text
        there, gone = answer.json()["objects"]
        assert there["actions"] == {
            "download": {
                "href": f"{place.url}{OBJECTS}/{video}?size={len(VIDEO)}",
                "header": {},
            }
        }
        assert gone["error"]["code"] == 404
        assert (await client.get(there["actions"]["download"]["href"])).content == VIDEO
        refused = await client.get(f"{OBJECTS}/{missing}?size=7")
        assert (refused.status_code, "does not exist" in refused.json()["message"]) == (404, True)


async def test_lfs__addresses_are_those_of_the_door_that_a_request_came_through(place, video):
    sandbox = await place.plain_sandbox()
    path = f"{OBJECTS}/batch"
    signed = sign_origin(
        ENGINE_KEY,
        sandbox.backend_sandbox_id,
        method="POST",
        target=path.encode(),
        at=int(time.time()),
    )
    async with httpx.AsyncClient(
        base_url=place.url, headers={HEADER.decode(): signed.decode()}
    ) as client:
        answer = await ask_batch(client, "download", (video, len(VIDEO)))
    [found] = answer.json()["objects"]
    assert found["actions"]["download"]["href"].startswith(f"http://git.sandbox{OBJECTS}/{video}?")


async def test_lfs__what_may_not_be_asked(place, api, forge, video):
    fetching, pushing = await place.plain_sandbox(), await place.task_sandbox()
    async with await api(fetching) as client:
        upload = await ask_batch(client, "upload", (video, len(VIDEO)))
        assert (upload.status_code, "not push to it" in upload.json()["message"]) == (403, True)
        assert (await client.put(f"{OBJECTS}/{video}", content=VIDEO)).status_code == 403
        locks = await client.get(f"/git/{ADDRESS}/info/lfs/locks")
        assert (locks.status_code, "locked" in locks.json()["message"]) == (403, True)
        assert (await client.get(f"{OBJECTS}/{video}")).status_code == 400
    assert not forge.lfs.batches
    async with await api(pushing) as client:
        for objects, members in (
            ([], {}),
            ([(video, 1)] * 101, {}),
            ([("0" * 63, 1)], {}),
            ([(video, -1)], {}),
            ([(video, 2**40)], {}),
            ([(video, 1)], {"hash_algo": "sha512"}),
            ([(video, 1)], {"transfers": ["tus"]}),
        ):
            answer = await ask_batch(client, "upload", *objects, **members)
            assert (answer.status_code, bool(answer.json()["message"])) == (422, True)
        assert (await ask_batch(client, "delete", (video, 1))).status_code == 422


async def test_lfs__upload_of_another_content_is_never_complete_at_the_forge(place, api, forge):
    sandbox = await place.task_sandbox()
    other = oid_of(b"other")
    async with await api(sandbox) as client:
        answer = await client.put(f"{OBJECTS}/{other}", content=VIDEO)
        assert (answer.status_code, "not that of" in answer.json()["message"]) == (422, True)
        assert not forge.lfs.contents
        forge.lfs.add(b"other")
        assert (await client.put(f"{OBJECTS}/{other}", content=b"other")).status_code == 200
    assert not forge.lfs.verified


async def test_lfs__the_forge_does_not_answer(place, api, forge, video):
    sandbox = await place.task_sandbox()
    forge.answer = HTTPStatus.BAD_GATEWAY
    async with await api(sandbox) as client:
        asked = await ask_batch(client, "download", (video, len(VIDEO)))
        assert (asked.status_code, "answered 502" in asked.json()["message"]) == (503, True)
        assert asked.headers["retry-after"] == "30"
        assert (await client.put(f"{OBJECTS}/{video}", content=VIDEO)).status_code == 503


async def test_lfs__a_damaged_content_does_not_pass_for_whole(place, api, forge, video):
    forge.lfs.contents[video] = VIDEO[:-1] + b"x"
    sandbox = await place.plain_sandbox()
    async with await api(sandbox) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(f"{OBJECTS}/{video}?size={len(VIDEO)}")


async def test_lfs__contents_are_not_fetched_from_addresses_that_only_the_server_reaches(
    place, api, forge, video
):
    sandbox = await place.task_sandbox()
    forge.lfs.origin = f"http://localhost:{forge.port}"
    async with await api(sandbox) as client:
        path = f"{OBJECTS}/{video}?size={len(VIDEO)}"
        answer = await client.get(path)
        assert answer.status_code == 502
        assert "localhost, which is not an address of the internet" in answer.json()["message"]
        forge.lfs.origin, forge.lfs.redirect_to = None, f"http://localhost:{forge.port}"
        assert (await client.get(path)).status_code == 502
        assert forge.lfs.tokens == []
        forge.lfs.contents.clear()
        forge.lfs.origin = f"http://localhost:{forge.port}"
        assert (await client.put(f"{OBJECTS}/{video}", content=VIDEO)).status_code == 502
