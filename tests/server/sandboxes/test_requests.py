"""What is refused, and how lists are told, with nothing carried out."""

import json

import pytest

from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import State, Target
from tests.server.support.api_fixtures import all_of, caller_of
from tests.server.support.rows import add_backend, add_sandbox, find_tenant, now

ALL = "/v1/sandboxes"


@pytest.fixture
async def tenant_id(admin, sessions):
    return await find_tenant(sessions)


async def ids(caller, **params):
    return [one["id"] async for one in all_of(caller, ALL, **params)]


async def test_list__pages_contain_each_sandbox_once_newest_first(admin, sessions, tenant_id):
    rows = [await add_sandbox(sessions, tenant_id) for _ in range(5)]
    assert await ids(admin, limit=2) == [row.id for row in reversed(rows)]


async def test_list__a_sandbox_added_between_pages_moves_nothing(admin, sessions, tenant_id):
    rows = [await add_sandbox(sessions, tenant_id) for _ in range(4)]
    told = []
    async for one in all_of(admin, ALL, limit=1):
        told.append(one["id"])
        await add_sandbox(sessions, tenant_id)
    assert told == [row.id for row in reversed(rows)]


async def test_list__a_sandbox_ended_between_pages_hides_no_other(admin, sessions, tenant_id):
    rows = [await add_sandbox(sessions, tenant_id) for _ in range(4)]
    first = (await admin.get(ALL, params={"limit": 2})).json()
    async with sessions.begin() as session:
        last_told = await session.merge(rows[2])
        last_told.state, last_told.target, last_told.ended_at = State.STOPPED, Target.GONE, now()
    rest = await ids(admin, limit=2, cursor=first["next_cursor"])
    assert rest == [rows[1].id, rows[0].id]


async def test_list__is_filtered_by_the_query(admin, sessions, tenant_id):
    mine = {"user_id": "u", "session_id": "s", "labels": {"team": "blue", "tier.one": "x"}}
    match = await add_sandbox(sessions, tenant_id, **mine)
    await add_sandbox(sessions, tenant_id, user_id="v", session_id="t", labels={"team": "red"})
    for asked in (
        {"user_id": "u"},
        {"session_id": "s"},
        {"metadata.team": "blue"},
        {"metadata.tier.one": "x", "metadata.team": "blue"},
    ):
        assert await ids(admin, **asked) == [match.id]
    assert await ids(admin, user_id="u", session_id="t") == []


async def test_list__is_filtered_by_template_and_backend(admin, sessions, tenant_id):
    for name in ("engine", "e2b"):
        await add_backend(sessions, name)
    match = await add_sandbox(sessions, tenant_id, template="agent", backend="engine")
    other = await add_sandbox(sessions, tenant_id, template="base", backend="e2b")
    assert await ids(admin, template="agent") == [match.id]
    assert await ids(admin, backend="e2b") == [other.id]
    assert await ids(admin, template="agent", backend="e2b") == []


async def test_list__many_ids_are_read_at_once_in_every_state(admin, sessions, tenant_id):
    running = await add_sandbox(sessions, tenant_id)
    ended = {"state": State.FAILED, "target": Target.GONE, "ended_at": now()}
    failed = await add_sandbox(sessions, tenant_id, **ended)
    await add_sandbox(sessions, tenant_id)
    assert await ids(admin, id=[running.id, "nosuch", failed.id]) == [failed.id, running.id]
    assert await ids(admin, id=[running.id, failed.id], state="failed") == [failed.id]
    assert await ids(admin, id=["nosuch"]) == []


async def test_list__states_can_be_combined_and_ended_ones_must_be_named(
    admin, sessions, tenant_id
):
    running = await add_sandbox(sessions, tenant_id)
    ended = {"state": State.FAILED, "target": Target.GONE, "ended_at": now()}
    failed = await add_sandbox(sessions, tenant_id, **ended)
    assert await ids(admin) == [running.id]
    assert await ids(admin, state="failed") == [failed.id]
    assert await ids(admin, state=["failed", "running"]) == [failed.id, running.id]


REFUSED_LISTS = {
    "state": {"state": "asleep"},
    "limit": {"limit": "0"},
    "id": {"id": ["x"] * 201},
    "cursor": {"cursor": "x"},
    "user_id": {"user_id": "u" * 201},
    "session_id": {"session_id": ""},
    "metadata.k": {"metadata.k": "v" * 1025},
}


@pytest.mark.parametrize("parameter", REFUSED_LISTS)
async def test_list__an_invalid_query_is_refused_by_name(admin, parameter):
    answer = await admin.get(ALL, params=REFUSED_LISTS[parameter])
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["parameter"].startswith(parameter)


REFUSED_BODIES = {
    "unknown": ({"tempalte": "base"}, "#/tempalte"),
    "timeout": ({"timeout_s": 0}, "#/timeout_s"),
    "year": ({"timeout_s": 365 * 86400 + 1}, "#/timeout_s"),
    "envs": ({"envs": {"A": 1}}, "#/envs/A"),
    "label": ({"metadata": {"a/b~c": 7}}, "#/metadata/a~1b~0c"),
    "nested": ({"network": {"allow_out": ["", "1.1.1.1"]}}, "#/network/allow_out/0"),
    "switch": ({"network": {"allow_internet": 0}}, "#/network/allow_internet"),
    "nul": ({"user_id": "a\0b"}, "#/user_id"),
    "half": ({"user_id": "\ud800"}, "#/user_id"),
    "all": ([], "#"),
}


@pytest.mark.parametrize("case", REFUSED_BODIES)
async def test_create_request__an_invalid_body_is_refused_at_its_field(admin, case):
    body, pointer = REFUSED_BODIES[case]
    answer = await admin.post(
        ALL, content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    assert answer.json()["code"] == "validation-failed"
    [error] = answer.json()["errors"]
    assert error["pointer"] == pointer


@pytest.mark.parametrize("wait", ["-1", "301", "nan", "soon"])
async def test_wait__is_limited(admin, wait):
    answer = await admin.post(ALL, json={}, params={"wait": wait})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == "wait"


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_idempotency_key__has_a_maximum_length(admin, key):
    answer = await admin.post(ALL, json={}, headers={"Idempotency-Key": key})
    assert answer.status_code == 422


NO_ID = ["short", "A" * 20, "x" * 5000, "é" * 20, "..%2f..%2fetc%2fpasswd00"]
OF_ONE = [
    ("GET", ""),
    ("PATCH", ""),
    ("DELETE", ""),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/keepalive"),
    ("POST", "/fork"),
    ("POST", "/snapshots"),
    ("GET", "/metrics"),
    ("GET", "/timeline"),
    ("GET", "/events"),
    ("GET", "/ports/80"),
]


def body_of(method):
    return {} if method in {"POST", "PATCH"} else None


@pytest.mark.parametrize("sandbox_id", NO_ID, ids=[str(number) for number in range(len(NO_ID))])
async def test_sandbox_id__an_invalid_one_is_not_found(admin, sandbox_id):
    for answer in (
        await admin.get(f"{ALL}/{sandbox_id}/timeline"),
        await admin.get("/sandboxes/status", params={"sandbox_id": sandbox_id}),
    ):
        assert answer.status_code == 404
        assert answer.json()["code"] in {"sandbox-not-found", "route-not-found"}


@pytest.mark.parametrize(("method", "path"), OF_ONE, ids=[f"{m} {p}" for m, p in OF_ONE])
async def test_sandbox_id__another_tenants_is_not_found(
    app, admin, make_key, sessions, tenant_id, method, path
):
    theirs = await add_sandbox(sessions, tenant_id)
    async with caller_of(app, await make_key(tenant="other")) as other:
        real = await other.request(method, f"{ALL}/{theirs.id}{path}", json=body_of(method))
        made_up = await other.request(method, f"{ALL}/{new_id()}{path}", json=body_of(method))
    assert (real.status_code, made_up.status_code) == (404, 404)
    told, expected = real.json(), made_up.json()
    assert told["code"] == expected["code"] == "sandbox-not-found"
    assert told.keys() == expected.keys()


@pytest.mark.parametrize(("method", "path"), OF_ONE, ids=[f"{m} {p}" for m, p in OF_ONE])
async def test_read_scope__changes_nothing(app, admin, make_key, sessions, tenant_id, method, path):
    await add_backend(sessions)
    row = await add_sandbox(sessions, tenant_id)
    async with caller_of(app, await make_key(scopes=["read"])) as reader:
        answer = await reader.request(method, f"{ALL}/{row.id}{path}", json=body_of(method))
    if method == "GET":
        assert answer.status_code in {200, 503}
    else:
        assert (answer.status_code, answer.json()["code"]) == (403, "scope-missing")


async def test_sandbox_read__has_the_documented_fields(admin, sessions, tenant_id):
    row = await add_sandbox(sessions, tenant_id, started_at=now(), last_activity_at=now())
    told = (await admin.get(f"{ALL}/{row.id}")).json()
    promised = (
        "id state state_reason target template backend agent_type user_id session_id metadata resources urls created_at "
        "last_activity_at idle_pause_at expires_at on_timeout queue"
    )
    assert set(promised.split()) <= told.keys()
    assert "envs" not in told


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1"])
async def test_port__must_be_a_port_number(admin, port):
    answer = await admin.get(f"{ALL}/{new_id()}/ports/{port}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == "port"


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "mine"}])
async def test_mcp_servers__nesting_is_limited(admin, headers):
    deep = json.loads("[" * 300 + "]" * 300)
    for servers in ({"one": {"list": deep}}, {"one": {"a": [{"b": {"c": deep}}]}}):
        answer = await admin.post(ALL, headers=headers, json={"mcp_servers": servers})
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert error == {
            "pointer": "#/mcp_servers",
            "detail": "MCP servers may be nested at most 32 levels deep.",
        }
