"""Who may ask for what: other tenants, forged headers, tokens of deleted sandboxes."""

import asyncio
import time
from datetime import UTC, datetime

import httpx
import pytest

from sandbox_http.origin import sign_origin
from sandbox_server.db.models import Repository, Sandbox, Task
from sandbox_server.domain.ids import new_id
from sandbox_server.git.endpoint.targets import address_of, parse_target
from tests.server.git.endpoint.conftest import ADDRESS, ENGINE_KEY, TOKEN
from tests.server.support import sandbox_rows

REFS = "/info/refs?service=git-upload-pack"
PUSH_REFS = "/info/refs?service=git-receive-pack"


@pytest.fixture
async def ask(place):
    """Ask the endpoint, signed by the engine or with a token."""
    async with httpx.AsyncClient(base_url=place.url) as client:

        async def ask(path, *, signed=None, user=None, token=TOKEN, key=ENGINE_KEY, at=None):
            headers = {}
            if signed is not None:
                value = sign_origin(
                    key,
                    signed.backend_sandbox_id,
                    method="GET",
                    target=path.encode(),
                    at=int(at or time.time()),
                )
                headers["Sandbox-Origin"] = value.decode()
            auth = None if user is None else (user.id, token)
            return await client.get(path, headers=headers, auth=auth)

        yield ask


def path_of(address=ADDRESS, service=REFS):
    return f"/git/{address}{service}"


async def add_repository(place, name, *, tenant_id="t", url=None):
    async with place.sessions() as session:
        original = await session.get(Repository, place.repository_id)
    row = Repository(
        id=new_id(),
        tenant_id=tenant_id,
        forge_id=original.forge_id,
        external_id=new_id(),
        full_name=name,
        default_branch="main",
        url=url or f"https://git.example.org/{name}",
        settings={},
    )
    await sandbox_rows.add(place.sessions, row)
    return row


async def test_access__signed_by_the_engine(place, ask):
    sandbox = await place.plain_sandbox()
    answer = await ask(path_of(), signed=sandbox)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-git-upload-pack-advertisement"
    assert answer.headers["cache-control"] == "no-cache, max-age=0, must-revalidate"


@pytest.mark.parametrize("how", ["none", "other key", "old", "other path", "unknown sandbox"])
async def test_access__header_that_proves_nothing(place, ask, how):
    sandbox = await place.plain_sandbox()
    if how == "none":
        answer = await ask(path_of())
    elif how == "other key":
        answer = await ask(path_of(), signed=sandbox, key="e2b_other")
    elif how == "old":
        answer = await ask(path_of(), signed=sandbox, at=time.time() - 120)
    elif how == "other path":
        value = sign_origin(
            ENGINE_KEY, sandbox.backend_sandbox_id, method="GET", target=b"/git/x", at=0
        )
        async with httpx.AsyncClient(base_url=place.url) as client:
            answer = await client.get(path_of(), headers={"Sandbox-Origin": value.decode()})
    else:
        answer = await ask(path_of(), signed=sandbox_rows.sandbox(backend_sandbox_id="other"))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic")


async def test_access__token_of_the_sandbox(place, ask):
    sandbox, other = await place.plain_sandbox(), await place.sandbox(token="another")
    assert (await ask(path_of(), user=sandbox)).status_code == 200
    assert (await ask(path_of(), user=sandbox, token="another")).status_code == 401
    assert (await ask(path_of(), user=sandbox, token="")).status_code == 401
    assert (await ask(path_of(), user=other)).status_code == 401


async def test_access__of_a_sandbox_that_was_deleted(place, ask):
    sandbox = await place.plain_sandbox()
    await place.set(Sandbox, state="stopped", target="gone", ended_at=datetime.now(UTC))
    assert (await ask(path_of(), user=sandbox)).status_code == 401
    assert (await ask(path_of(), signed=sandbox)).status_code == 401


async def test_access__other_repositories(place, ask):
    sandbox = await place.plain_sandbox()
    await add_repository(place, "acme/secrets")
    for address in (
        "git.example.org/acme/secrets",
        "git.example.org/acme/none",
        "other/acme/widgets",
    ):
        answer = await ask(path_of(address), signed=sandbox)
        assert answer.status_code == 403
        assert f"{address} is not a repository of this sandbox" in answer.text
    nothing = await place.sandbox()
    assert (await ask(path_of(), signed=nothing)).status_code == 403


async def test_access__repository_of_another_tenant(place, ask):
    """A sandbox whose checkout names it nevertheless, and a tenant with a repository of the same address."""
    await sandbox_rows.add(place.sessions, sandbox_rows.tenant("other"))
    neighbour = await place.sandbox(
        tenant_id="other",
        checkout={"repository_id": place.repository_id, "push": True, "branch": "x"},
    )
    assert (await ask(path_of(), signed=neighbour)).status_code == 403
    assert (await ask(path_of(service=PUSH_REFS), signed=neighbour)).status_code == 403


async def test_access__repositories_that_the_settings_let_it_read(place, ask):
    await add_repository(place, "acme/library", url="https://git.example.org/acme/widgets-lib")
    sandbox = await place.task_sandbox(settings={"reads": ["Acme/Library"]})
    library = "git.example.org/acme/widgets-lib"
    allowed = await ask(path_of(library, PUSH_REFS), signed=sandbox)
    assert (allowed.status_code, "not push to it" in allowed.text) == (403, True)
    # It is found and read from the forge, which has no such repository.
    assert (await ask(path_of(library), signed=sandbox)).status_code not in (401, 403)


async def test_access__ends_with_the_task(place, ask):
    sandbox = await place.task_sandbox()
    assert (await ask(path_of(service=PUSH_REFS), signed=sandbox)).status_code == 200
    await place.set(Task, stage="cancelled", ended_at=datetime.now(UTC))
    assert (await ask(path_of(service=PUSH_REFS), signed=sandbox)).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/git/",
        "/git/git.example.org",
        f"/git/{ADDRESS}",
        f"/git/{ADDRESS}/HEAD",
        f"/git/{ADDRESS}/objects/info/packs",
        f"/git/{ADDRESS}/info/refs",
        f"/git/{ADDRESS}/info/refs?service=git-upload-archive",
        f"/git/{ADDRESS}/git-upload-pack",
    ],
)
async def test_access__nothing_but_smart_http(place, ask, path):
    sandbox = await place.plain_sandbox()
    assert (await ask(path, signed=sandbox)).status_code == 404


async def test_access__requests_in_progress_are_limited(place, ask, forge):
    sandbox = await place.plain_sandbox()
    answers = await asyncio.gather(*(ask(path_of(), signed=sandbox) for _ in range(12)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 503}
    assert (await ask(path_of(), signed=sandbox)).status_code == 200


@pytest.mark.parametrize(
    ("path", "url", "service"),
    [
        (
            "github.com/Acme/Widgets.git/info/refs",
            "https://u@github.com/acme/widgets.git/",
            "info/refs",
        ),
        (
            "gitlab.com:8443/a/b/c/git-receive-pack",
            "https://gitlab.com:8443/a/b/c",
            "git-receive-pack",
        ),
        ("h/a/b/info/lfs/locks/verify", "http://h/a/b", "info/lfs/locks"),
        (f"h/a/b.git/info/lfs/objects/{'a' * 64}", "http://h/a/b", "info/lfs/objects"),
    ],
)
def test_target__names_a_repository_and_a_service(path, url, service):
    target = parse_target(f"/git/{path}")
    assert target is not None
    assert (target.address, target.service) == (address_of(url), service)


def test_target__nothing_is_there():
    assert parse_target(f"/git/h/a/b.git/info/lfs/objects/{'a' * 65}") is None
    assert parse_target("/git/h/info/refs") is None
