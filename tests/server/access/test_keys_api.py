import asyncio

import pytest

from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of


@pytest.fixture
def create(admin):
    async def create(**wanted):
        answer = await admin.post("/v1/keys", json=wanted)
        assert answer.status_code == 201, answer.text
        return answer.json()

    return create


async def test_api_keys__a_new_key_works_and_its_secret_is_returned_once(create, app, admin):
    made = await create(name="ci", scopes=["read"], max_priority=5, rate_per_s=10)
    async with caller_of(app, made["secret"]) as caller:
        assert (await caller.get("/v1/events")).status_code == 200
        assert_problem(await caller.get("/v1/keys"), status=403, code="scope-missing")
    read = (await admin.get(f"/v1/keys/{made['id']}")).json()
    assert made["secret"].startswith(read["prefix"])
    assert read.pop("last_used_at") is not None
    assert read == {name: value for name, value in made.items() if name in read}
    assert set(made) == {*read, "secret", "last_used_at"}
    assert made["secret"] not in (await admin.get("/v1/keys")).text


async def test_api_keys__a_key_belongs_to_the_callers_tenant_unless_another_is_named(
    create, admin, make_key
):
    await make_key(tenant="team")
    assert (await create())["tenant"] == "default"
    assert (await create(tenant="team"))["tenant"] == "team"
    answer = await admin.post("/v1/keys", json={"tenant": "nobody"})
    assert_problem(answer, status=404, code="tenant-not-found")


async def test_api_keys__a_repeated_request_creates_no_second_key(admin):
    answers = await asyncio.gather(
        *(
            admin.post("/v1/keys", json={"name": "ci"}, headers={"Idempotency-Key": "k"})
            for _ in range(8)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
    assert {answer.json().get("code") for answer in answers} == {None, "key-issued-before"}
    keys = (await admin.get("/v1/keys")).json()["items"]
    assert [key["name"] for key in keys].count("ci") == 1


async def test_api_keys__a_different_request_with_the_same_idempotency_key_is_rejected(admin):
    for name, status in (("ci", 201), ("other", 422)):
        answer = await admin.post("/v1/keys", json={"name": name}, headers={"Idempotency-Key": "k"})
        assert answer.status_code == status


async def test_api_keys__keys_are_listed_newest_first_in_pages(create, admin):
    made = [(await create())["id"] for _ in range(4)]
    listed, cursor = [], ""
    while cursor is not None:
        page = (await admin.get(f"/v1/keys?limit=2{cursor}")).json()
        assert len(page["items"]) <= 2
        listed += [key["id"] for key in page["items"]]
        cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
    assert listed[:4] == made[::-1]
    assert len(listed) == 5  # including the admin's own key


async def test_api_keys__the_list_can_be_filtered_by_tenant(create, admin, make_key):
    await make_key(tenant="team")
    await create()
    page = (await admin.get("/v1/keys?tenant=team")).json()
    assert [key["tenant"] for key in page["items"]] == ["team"]


async def test_api_keys__scopes_and_limits_can_be_updated(create, admin, app):
    made = await create(scopes=["read"], rate_per_s=5)
    async with caller_of(app, made["secret"]) as caller:
        assert (await caller.get("/v1/keys")).status_code == 403
        answer = await admin.patch(
            f"/v1/keys/{made['id']}",
            json={"scopes": ["admin", "read", "admin"], "rate_per_s": None},
        )
        assert answer.json()["scopes"] == ["admin", "read"]
        assert answer.json()["rate_per_s"] is None
        assert answer.json()["name"] == made["name"]
        assert (await caller.get("/v1/keys")).status_code == 200


async def test_api_keys__a_revoked_key_is_rejected_and_stays_listed(create, admin, app):
    made = await create()
    async with caller_of(app, made["secret"]) as caller:
        assert (await caller.get("/v1/events")).status_code == 200
        assert (await admin.delete(f"/v1/keys/{made['id']}")).status_code == 204
        assert_problem(await caller.get("/v1/events"), status=401, code="unauthenticated")
    assert (await admin.get(f"/v1/keys/{made['id']}")).json()["revoked_at"] is not None


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
@pytest.mark.parametrize("key_id", ["0" * 20, "x", "A" * 20, "'"])
async def test_api_keys__an_unknown_key_is_not_found(admin, method, key_id):
    body = {"json": {"name": "n"}} if method == "PATCH" else {}
    answer = await admin.request(method, f"/v1/keys/{key_id}", **body)
    assert_problem(answer, status=404, code="key-not-found")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"scopes": []}, "#/scopes"),
        ({"scopes": ["root"]}, "#/scopes/0"),
        ({"rate_per_s": 0}, "#/rate_per_s"),
        ({"rate_per_s": "inf"}, "#/rate_per_s"),
        ({"max_priority": 10**30}, "#/max_priority"),
        ({"name": "a\0b"}, "#/name"),
        ({"name": "x" * 201}, "#/name"),
        ({"tenant": "No Such"}, "#/tenant"),
        ({"hash": "00"}, "#/hash"),
        ([], "#"),
    ],
    ids=str,
)
async def test_api_keys__invalid_fields_are_named_in_the_error(admin, body, pointer):
    problem = assert_problem(
        await admin.post("/v1/keys", json=body), status=422, code="validation-failed"
    )
    assert [error["pointer"] for error in problem["errors"]] == [pointer]


async def test_api_keys__a_lone_surrogate_in_a_name_is_rejected(admin):
    answer = await admin.post(
        "/v1/keys", content='{"name": "\\ud800"}', headers={"Content-Type": "application/json"}
    )
    assert_problem(answer, status=422, code="validation-failed")


@pytest.mark.parametrize("scope", ["read", "sandboxes"])
async def test_api_keys__only_admins_can_manage_keys_and_tenants(app, make_key, scope):
    async with caller_of(app, await make_key(scopes=[scope])) as caller:
        for method, path in [
            ("GET", "/v1/keys"),
            ("POST", "/v1/keys"),
            ("GET", "/v1/keys/x"),
            ("PATCH", "/v1/keys/x"),
            ("DELETE", "/v1/keys/x"),
            ("GET", "/v1/tenants"),
            ("GET", "/v1/tenants/default"),
            ("PUT", "/v1/tenants/default"),
        ]:
            answer = await caller.request(method, path)
            assert_problem(answer, status=403, code="scope-missing")
