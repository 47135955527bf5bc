import pytest

from tests.server.support.api_fixtures import all_of, caller_of
from tests.server.support.rows import add_event, add_sandbox, find_tenant


@pytest.fixture
async def tenant_id(admin, sessions):
    return await find_tenant(sessions)


async def test_list_events__returns_what_happened_and_why_oldest_first(admin, sessions, tenant_id):
    row = await add_sandbox(sessions, tenant_id)
    await add_event(sessions, tenant_id, row.id, "First.")
    await add_event(sessions, tenant_id, row.id, "Second.")
    told = (await admin.get("/v1/events")).json()
    assert [event["reason"] for event in told["items"]] == ["First.", "Second."]
    assert told["next_cursor"] is None
    first = told["items"][0]
    assert first["seq"] == 1
    assert first["type"] == "sandbox.stopping"
    assert first["cause"] == "expiry"
    assert first["actor"] == {"kind": "server", "id": None}
    assert first["sandbox_id"] == row.id


@pytest.mark.parametrize("path", ["/v1/events", "sandbox", "timeline"])
async def test_list_events__all_pages_contain_each_event_once(admin, sessions, tenant_id, path):
    row = await add_sandbox(sessions, tenant_id)
    path = {
        "sandbox": f"/v1/sandboxes/{row.id}/events",
        "timeline": f"/v1/sandboxes/{row.id}/timeline",
    }.get(path, path)
    for _ in range(5):
        await add_event(sessions, tenant_id, row.id)
    seen = [event["seq"] async for event in all_of(admin, path, limit=2)]
    assert seen == [1, 2, 3, 4, 5]


async def test_list_events__continues_after_an_event_number(admin, sessions, tenant_id):
    row = await add_sandbox(sessions, tenant_id)
    for _ in range(3):
        await add_event(sessions, tenant_id, row.id)
    told = (await admin.get("/v1/events", params={"after": 1})).json()
    assert [event["seq"] for event in told["items"]] == [2, 3]


async def test_list_sandbox_events__returns_only_events_of_the_sandbox(admin, sessions, tenant_id):
    one, other = [await add_sandbox(sessions, tenant_id) for _ in range(2)]
    await add_event(sessions, tenant_id, one.id)
    await add_event(sessions, tenant_id, other.id)
    for path in ("events", "timeline"):
        told = (await admin.get(f"/v1/sandboxes/{other.id}/{path}")).json()
        assert [event["seq"] for event in told["items"]] == [2]


async def test_tenancy__events_of_other_tenants_are_not_returned(
    app, admin, make_key, sessions, tenant_id
):
    row = await add_sandbox(sessions, tenant_id)
    await add_event(sessions, tenant_id, row.id)
    async with caller_of(app, await make_key(tenant="other")) as other:
        assert (await other.get("/v1/events")).json()["items"] == []
        for path in ("events", "timeline"):
            answer = await other.get(f"/v1/sandboxes/{row.id}/{path}")
            assert answer.status_code == 404
            assert answer.json()["code"] == "sandbox-not-found"


@pytest.mark.parametrize(
    "asked",
    [{"limit": 0}, {"limit": 201}, {"after": -1}, {"after": 10**30}, {"cursor": "nonsense"}],
    ids=["none", "many", "negative", "huge", "forged"],
)
async def test_list_events__invalid_parameters_are_refused_by_name(admin, asked):
    answer = await admin.get("/v1/events", params=asked)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] in asked
