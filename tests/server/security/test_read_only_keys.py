"""Read-only keys, tickets and logins cannot read secrets of sandboxes."""

import json
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.server.support.described_answers import description
from tests.server.support.full_server import inside
from tests.server.tools.conftest import make_sandbox, run  # noqa: F401 - fixtures

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs_engine,
    pytest.mark.timeout(300),
]

SECRET_ENV = "a-secret-variable"
SECRET_HEADER = "a-secret-header"
SERVERS = {"far": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": SECRET_HEADER}}}
SETTINGS = "/etc/sandbox/tools.json"
PATHS = [
    SETTINGS,
    "//etc//sandbox//tools.json",
    "/etc/../etc/sandbox/./tools.json",
    "../../etc/sandbox/tools.json",
    "~/../../etc/sandbox/tools.json",
    "/proc/1/root/etc/sandbox/tools.json",
    "/proc/self/root/etc/sandbox/tools.json",
    "link",
    "hard",
    "copy",
    "below/tools.json",
    "/proc/1/environ",
    "ordinary",
]
DIRECTORIES = ["/", "/etc", "/etc/sandbox", "below", ".", "/proc/1/root/etc"]
USERS = [None, "user", "root"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(outside):
    async with outside.api() as api:
        yield api


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox_id(make_sandbox, run):  # noqa: F811
    made = await make_sandbox(tools=None, envs={"KEY": SECRET_ENV}, mcp_servers=SERVERS)
    await run(
        made,
        f"cd /home/user && echo fine > ordinary && ln -s {SETTINGS} link && ln {SETTINGS} hard"
        f" && cp {SETTINGS} copy && ln -s /etc/sandbox below && chmod a+r copy",
    )
    return made


@pytest_asyncio.fixture(loop_scope="module")
async def secrets(outside, sandbox_id):
    # Not by a command of the API, whose output is recorded for all who may read.
    sandbox = await inside(outside, sandbox_id)
    settings = json.loads((await sandbox.commands.run(f"cat {SETTINGS}", user="root")).stdout)
    assert SECRET_ENV in json.dumps(settings)
    assert SECRET_HEADER in json.dumps(settings)
    return [settings["token"], settings["password"], SECRET_ENV, SECRET_HEADER]


@asynccontextmanager
async def login_of(outside, key):
    """Sign in as the web page does."""
    async with outside.api(**{"X-API-Key": key, "Sec-Fetch-Site": "same-origin"}) as page:
        signed_in = await page.post("/v1/login")
        assert signed_in.is_success, signed_in.text
        del page.headers["X-API-Key"]
        page.headers["Cookie"] = signed_in.headers["Set-Cookie"].partition(";")[0]
        yield page, {}


@asynccontextmanager
async def ticket_of(outside, key, **wanted):
    async with outside.api(**{"X-API-Key": key}) as caller:
        made = await caller.post("/v1/tickets", json=wanted)
        assert made.status_code == 201, made.text
        del caller.headers["X-API-Key"]
        yield caller, {"ticket": made.json()["ticket"]}


@asynccontextmanager
async def key_of(outside, key):
    async with outside.api(**{"X-API-Key": key}) as caller:
        yield caller, {}


@pytest_asyncio.fixture(
    params=["key", "ticket", "ticket-of-operator", "login"], loop_scope="module"
)
async def reader(request, outside, sandbox_id):
    """Provide a read-only caller and what it adds to the query."""
    _, key = await outside.new_key(scopes=["read"])
    about = {"scope": "read", "sandbox_id": sandbox_id}
    match request.param:
        case "key":
            callers = key_of(outside, key)
        case "ticket":
            callers = ticket_of(outside, key, **about)
        case "ticket-of-operator":
            callers = ticket_of(outside, outside.key, **about)
        case _:
            callers = login_of(outside, key)
    async with callers as reader:
        yield reader


def attempts():
    """List the requests that return file contents."""
    for user in USERS:
        for path in PATHS:
            for headers in ({}, {"Range": "bytes=0-4095"}, {"If-None-Match": '"x"'}):
                yield "GET", "content", path, user, headers
            yield "HEAD", "content", path, user, {}
        for path in DIRECTORIES:
            for kind in ("tar", "tar.gz"):
                yield "GET", f"archive?format={kind}", path, user, {}


async def test_read_only_keys__cannot_read_files(reader, sandbox_id):
    caller, query = reader
    for method, route, path, user, headers in attempts():
        params = {"path": path, **query, **({"user": user} if user else {})}
        name, _, more = route.partition("?")
        if more:
            params["format"] = more.partition("=")[2]
        answer = await caller.request(
            method, f"/v1/sandboxes/{sandbox_id}/files/{name}", params=params, headers=headers
        )
        assert answer.status_code == 403, (method, route, path, user)
        assert method == "HEAD" or answer.json()["code"] == "scope-missing"
        assert "ETag" not in answer.headers


async def test_read_only_keys__cannot_read_files_with_the_nine_verbs(reader, sandbox_id):
    caller, query = reader
    for path in PATHS:
        body = {"sandbox_id": sandbox_id, "path": path}
        answer = await caller.post("/sandboxes/read-file", json=body, params=query)
        assert answer.status_code == 403


async def test_read_only_keys__responses_contain_no_secrets(reader, sandbox_id, secrets):
    caller, query = reader
    asked = 0
    for described, operations in description()["paths"].items():
        path = described.replace("{sandbox_id}", sandbox_id).replace("{port}", "6060")
        if "get" not in operations or "{" in path or path.endswith(("/watch", "/socket")):
            continue
        params = {"path": SETTINGS, "sandbox": sandbox_id, "sandbox_id": sandbox_id, **query}
        async with caller.stream("GET", path, params=params) as answer:
            streams = answer.headers.get("Content-Type", "").startswith("text/event-stream")
            said = "" if streams else (await answer.aread()).decode(errors="replace")
        assert [one for one in secrets if one in said] == [], path
        asked += 1
    assert asked > 15


async def test_read_only_keys__can_list_files(reader, sandbox_id):
    caller, query = reader
    listed = await caller.get(
        f"/v1/sandboxes/{sandbox_id}/files",
        params={"path": "/etc/sandbox", "user": "root", **query},
    )
    assert [one["path"] for one in listed.json()["items"]] == [SETTINGS]


async def test_sandbox_keys__can_read_files_and_the_password(outside, sandbox_id, secrets):
    """A caller that can run commands in a sandbox could read them anyway."""
    _, key = await outside.new_key()
    for callers in (
        key_of(outside, key),
        ticket_of(outside, key, scope="sandboxes", sandbox_id=sandbox_id),
        login_of(outside, key),
    ):
        async with callers as (caller, query):
            read = await caller.get(
                f"/v1/sandboxes/{sandbox_id}/files/content", params={"path": SETTINGS, **query}
            )
            assert [one for one in secrets if one in read.text] == secrets
            told = (await caller.get(f"/v1/sandboxes/{sandbox_id}", params=query)).json()
            assert told["urls"]["code_server_password"] == secrets[1]
