"""Authorization of every operation of the API, by scope and tenant."""

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Backend, Sandbox, Snapshot
from sandbox_server.domain.ids import new_id
from tests.server.support.api_fixtures import caller_of
from tests.server.support.described_answers import list_operations
from tests.server.support.unreachable_backend import backends_nowhere

ABSENT = "0" * 20
OPEN = {"/healthz", "/readyz", "/version"}
# Forges sign what they send; see tests/server/forges/test_webhooks.py.
SIGNED = "/v1/webhooks/{forge_id}"
# Resources shared by all tenants: admins only.
SHARED = ("/v1/jobs", "/v1/keys", "/v1/tenants")
# Requests to a server in the sandbox require access to it, and may resume it.
INSIDE = tuple(
    f"/v1/sandboxes/{{sandbox_id}}/{each}" for each in ("mcp/", "agent/socket", "contexts")
)
# Files and screens may contain secrets.
CONTENTS = (
    "/v1/sandboxes/{sandbox_id}/desktop/screenshot",
    "/v1/sandboxes/{sandbox_id}/desktop/recordings",
    "/v1/browsers/{browser_id}/recordings",
    *(f"/v1/sandboxes/{{sandbox_id}}/files/{each}" for each in ("content", "archive")),
    *("/v1/tasks/{task_id}/diff", "/v1/tasks/{task_id}/saves/{number}/content"),
)
# Read-only keys can create read-only tickets.
READERS_OWN = {"/v1/tickets"}
# For our own page with any scope: see test_logins.py.
PAGES_OWN = "/v1/login"


@pytest.fixture
async def backends(sessions):
    async with backends_nowhere(sessions) as backends:
        yield backends


@pytest.fixture
def operations():
    return list_operations()


@pytest.fixture
async def other_tenants(app, make_key):
    """Queue a sandbox of another tenant; returns its id."""
    async with caller_of(app, await make_key(tenant="other")) as other:
        made = await other.post("/v1/sandboxes", params={"wait": 0}, json={})
    assert made.status_code == 202, made.text
    return made.json()["id"]


async def call(caller, operation, *, sandbox_id=ABSENT):
    """Send a valid request about this sandbox."""
    path = operation.path
    for parameter in operation.parameters:
        value = {"sandbox_id": sandbox_id, "port": "80", "name": "x"}.get(parameter["name"], ABSENT)
        path = path.replace(f"{{{parameter['name']}}}", value)
    query = operation.query
    if is_asked(operation, "query", "sandbox_id"):
        query["sandbox_id"] = sandbox_id
    fields = operation.required
    if "sandbox_id" in operation.fields:
        fields["sandbox_id"] = sandbox_id
    body = {"json": fields} if operation.fields else {}
    return await caller.request(operation.method, path, params=query, **body)


def is_asked(operation, place, name):
    return any((each["in"], each["name"]) == (place, name) for each in operation.parameters)


async def test_authorization__only_public_operations_answer_without_a_key(stranger, operations):
    answering = {
        operation.path
        for operation in operations
        if (await call(stranger, operation)).status_code != 401
    }
    assert answering == OPEN | {SIGNED}


async def test_authorization__a_read_only_key_cannot_change_anything(app, make_key, operations):
    wrong = []
    async with caller_of(app, await make_key(scopes=["read"])) as reader:
        for operation in operations:
            if operation.path in {PAGES_OWN, SIGNED}:
                continue
            refused = (await call(reader, operation)).status_code == 403
            changes = operation.method != "get" or operation.path.startswith(
                (*SHARED, *INSIDE, *CONTENTS)
            )
            if refused != (changes and operation.path not in READERS_OWN):
                wrong.append((operation.method, operation.path, refused))
    assert wrong == []


async def test_authorization__a_sandbox_key_cannot_change_shared_resources(
    app, make_key, operations
):
    async with caller_of(app, await make_key(scopes=["sandboxes"])) as operator:
        for operation in operations:
            if operation.path.startswith(SHARED):
                assert (await call(operator, operation)).status_code == 403, operation.path


async def test_tenant_isolation__another_tenants_sandbox_is_not_found(
    app, make_key, operations, other_tenants
):
    tried = 0
    async with caller_of(app, await make_key(scopes=["sandboxes"])) as caller:
        for operation in operations:
            about_one = "sandbox_id" in operation.fields or any(
                each["name"] == "sandbox_id" for each in operation.parameters
            )
            if not about_one:
                continue
            answers = [
                await call(caller, operation, sandbox_id=each) for each in (other_tenants, ABSENT)
            ]
            theirs, absent = (answer.json() for answer in answers)
            assert [answer.status_code for answer in answers] == [404, 404], operation.path
            assert theirs.pop("request_id") != absent.pop("request_id")
            assert str(theirs).replace(other_tenants, ABSENT) == str(absent)
            tried += 1
    assert tried > 15


async def test_tenant_isolation__another_tenants_sandbox_is_not_listed(
    app, make_key, other_tenants
):
    async with caller_of(app, await make_key(scopes=["sandboxes"])) as caller:
        for path in ("/v1/sandboxes", "/v1/events", "/v1/snapshots", "/v1/stats"):
            answer = await caller.get(path)
            assert answer.status_code == 200
            assert other_tenants not in answer.text


async def test_tenant_isolation__another_tenants_snapshot_is_not_found(
    app, make_key, sessions, other_tenants
):
    async with sessions.begin() as session:
        owner = (await session.get_one(Sandbox, other_tenants)).tenant_id
        backend = await session.scalar(select(Backend.name))
        theirs = Snapshot(
            id=new_id(), tenant_id=owner, sandbox_id=other_tenants, backend=backend, state="ready"
        )
        session.add(theirs)
    async with caller_of(app, await make_key(scopes=["sandboxes"])) as caller:
        for method in ("GET", "DELETE"):
            answers = [
                await caller.request(method, f"/v1/snapshots/{each}")
                for each in (theirs.id, ABSENT)
            ]
            assert [answer.status_code for answer in answers] == [404, 404]
            first, second = ({**answer.json(), "request_id": None} for answer in answers)
            assert str(first).replace(theirs.id, ABSENT) == str(second)
        made = await caller.post("/v1/sandboxes", params={"wait": 0}, json={"template": theirs.id})
        assert made.status_code == 404
    async with sessions() as session:
        assert (await session.get_one(Snapshot, theirs.id)).state == "ready"


async def test_tenant_isolation__idempotency_keys_are_separate_per_tenant(app, make_key):
    made = []
    for tenant in ("default", "other"):
        async with caller_of(app, await make_key(tenant=tenant)) as caller:
            answer = await caller.post(
                "/v1/sandboxes",
                params={"wait": 0},
                json={"metadata": {"of": tenant}},
                headers={"Idempotency-Key": "one"},
            )
        assert answer.status_code == 202, answer.text
        made.append(answer.json()["id"])
    assert len(set(made)) == len(made)
