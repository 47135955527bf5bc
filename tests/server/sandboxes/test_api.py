"""Sandboxes over the API, from a caller's socket to the engine."""

import asyncio

import pytest

from sandbox_client.models import SandboxRead
from tests.engine.polling import until
from tests.server.support.api_fixtures import all_of

pytestmark = pytest.mark.needs_engine

ALL = "/v1/sandboxes"


async def create(api, *, wait=60, headers=None, **fields):
    body = {"template": "base", **fields}
    return await api.post(ALL, json=body, params={"wait": wait}, headers=headers)


async def test_sandboxes_api__creates_uses_and_deletes_a_sandbox(api):
    created = await create(api, user_id="u", metadata={"team": "blue"}, timeout_s=600)
    assert created.status_code == 201
    sandbox = created.json()
    path = f"{ALL}/{sandbox['id']}"
    assert created.headers["Location"] == path
    assert sandbox["state"] == sandbox["target"] == "running"
    assert sandbox["metadata"] == {"team": "blue"}
    assert sandbox["timeout_s"] == 600
    assert sandbox["backend"] == "local"
    assert sandbox["queue"] is None
    assert (await api.get(path)).json() == sandbox
    assert [one["id"] async for one in all_of(api, ALL)] == [sandbox["id"]]

    deleted = await api.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")

    gone = (await api.get(path)).json()
    assert (gone["state"], gone["urls"]) == ("stopped", None)
    assert gone["state_reason"]
    assert gone["ended_at"]
    assert [one["id"] async for one in all_of(api, ALL)] == []
    assert [one["id"] async for one in all_of(api, ALL, state="stopped")] == [sandbox["id"]]
    assert (await api.delete(path)).status_code == 204


async def test_sandboxes_api__create_needs_no_body(api):
    asked = [await api.post(ALL), await api.put(f"{ALL}/by-session/s")]
    assert [(answer.status_code, answer.json()["template"]) for answer in asked] == [
        (201, "base"),
        (201, "base"),
    ]


async def test_sandboxes_api__responses_match_the_clients_models(api):
    path = (await create(api)).headers["Location"]
    told = (await api.get(path)).json()
    assert SandboxRead.model_validate(told).model_dump(mode="json") == told
    assert told.keys() == SandboxRead.model_fields.keys()


async def test_sandboxes_api__network_rules_reach_the_provider(api, server, engine):
    network = {"allow_internet": True, "deny_out": ["10.0.0.0/8"]}
    sandbox = (await create(api, network=network)).json()
    at_provider = (await server.living.row(sandbox["id"])).backend_sandbox_id
    told = await engine.ask(f"/sandboxes/{at_provider}")
    assert told["allowInternetAccess"] is True
    assert told["network"]["denyOut"] == ["10.0.0.0/8"]


async def test_sandboxes_api__variables_reach_the_sandbox_and_are_never_returned(api):
    sandbox = (await create(api, envs={"GREETING": "a secret word"})).json()
    ran = await api.post(
        "/sandboxes/run-command", json={"sandbox_id": sandbox["id"], "command": "echo $GREETING"}
    )
    assert ran.json()["output"] == "a secret word\n"
    for path in ("", "/events", "/timeline"):
        assert "secret" not in (await api.get(f"{ALL}/{sandbox['id']}{path}")).text


async def test_sandboxes_api__a_paused_sandbox_keeps_its_time_and_resumes(api):
    path = f"{ALL}/{(await create(api)).json()['id']}"
    paused = await api.post(f"{path}/pause")
    assert paused.status_code == 200
    assert paused.json()["state"] == "paused"
    assert paused.json()["expires_at"] is None
    assert paused.json()["remaining_s"] > 0
    assert paused.json()["retain_until"]
    resumed = await api.post(f"{path}/resume")
    assert resumed.status_code == 200
    assert resumed.json()["state"] == "running"
    assert resumed.json()["remaining_s"] is None


async def test_sandboxes_api__a_change_is_returned_at_once(api):
    path = f"{ALL}/{(await create(api, idle_timeout_s=100)).json()['id']}"
    before = (await api.get(path)).json()
    changes = {
        "metadata": {"a": "b"},
        "timeout_s": 60,
        "on_timeout": "delete",
        "idle_timeout_s": None,
        "auto_resume": False,
    }
    changed = (await api.patch(path, json=changes)).json()
    assert {name: changed[name] for name in changes} == changes
    assert changed["expires_at"] < before["expires_at"]
    assert before["idle_pause_at"] is not None
    assert changed["idle_pause_at"] is None


async def test_sandboxes_api__keepalive_postpones_the_idle_pause(api):
    path = f"{ALL}/{(await create(api, idle_timeout_s=100, timeout_s=200)).json()['id']}"
    before = (await api.get(path)).json()
    kept = (await api.post(f"{path}/keepalive", json={"awake_s": 900, "timeout_s": 1000})).json()
    assert kept["idle_pause_at"] == kept["awake_until"] > before["idle_pause_at"]
    assert kept["expires_at"] > before["expires_at"]


async def test_sandboxes_api__a_queued_sandbox_has_a_position_and_a_reason(api, server):
    await server.set_capacity(0)
    queued = await create(api, wait=0)
    assert queued.status_code == 202
    assert queued.headers["Location"] == f"{ALL}/{queued.json()['id']}"
    assert int(queued.headers["Retry-After"]) >= 1
    assert queued.json()["state"] == "queued"
    assert queued.json()["urls"] is None
    assert queued.json()["queue"]["position"] == 1
    assert queued.json()["queue"]["reason"]


async def test_sandboxes_api__queued_sandboxes_are_listed_with_their_positions(api, server):
    await server.set_capacity(0)
    first, second = [(await create(api, wait=0)).json()["id"] for _ in range(2)]
    told = [(one["id"], one["queue"]["position"]) async for one in all_of(api, ALL)]
    assert told == [(second, 2), (first, 1)]


async def test_sandboxes_api__a_released_slot_starts_the_next(api, server):
    await server.set_capacity(1)
    path = (await create(api)).headers["Location"]
    waiting = asyncio.create_task(create(api, wait=60))
    await until(lambda: waits(api))
    await api.delete(path)
    ran = await waiting
    assert (ran.status_code, ran.json()["state"], ran.json()["queue"]) == (201, "running", None)


async def waits(api):
    return [one async for one in all_of(api, ALL, state="queued")]


async def test_sandboxes_api__a_queued_sandbox_can_be_cancelled(api, server):
    await server.set_capacity(0)
    path = (await create(api, wait=0)).headers["Location"]
    assert (await api.delete(path)).status_code == 204
    assert (await api.get(path)).json()["state"] == "stopped"


@pytest.mark.parametrize("template", ["no-such-template", "base:no-such-tag", "team/none"])
async def test_sandboxes_api__an_unknown_template_is_a_problem(api, template):
    failed = await create(api, template=template)
    assert failed.headers["Content-Type"] == "application/problem+json"
    found = failed.status_code, failed.json()["code"]
    assert found == ((422, "start-refused") if ":" in template else (404, "template-not-found"))
    assert template.partition(":")[0] in failed.json()["detail"]


async def test_idempotency__a_repeated_request_returns_the_same_sandbox(api):
    first = await create(api, headers={"Idempotency-Key": "once"})
    again = await create(api, headers={"Idempotency-Key": "once"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    other = await create(api, user_id="another", headers={"Idempotency-Key": "once"})
    assert other.status_code == 422
    assert other.json()["code"] == "idempotency-mismatch"


async def test_idempotency__twenty_concurrent_requests_with_one_key_create_one_sandbox(api):
    answers = await asyncio.gather(
        *(create(api, headers={"Idempotency-Key": "at once"}) for _ in range(20))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len([one async for one in all_of(api, ALL)]) == 1


async def test_session__has_one_sandbox_found_resumed_or_created(api):
    path = f"{ALL}/by-session/my%2Fown session"
    body = {"template": "base"}
    created = await api.put(path, json=body)
    found = await api.put(path, json=body)
    assert (created.status_code, found.status_code) == (201, 200)
    assert created.json()["session_id"] == "my/own session"
    assert created.json()["id"] == found.json()["id"]
    await api.post(f"{ALL}/{found.json()['id']}/pause")
    resumed = await api.put(path, json=body)
    assert (resumed.status_code, resumed.json()["state"]) == (200, "running")
    assert resumed.json()["id"] == created.json()["id"]


async def test_session__one_of_many_concurrent_requests_creates_it(api):
    path = f"{ALL}/by-session/crowded"
    answers = await asyncio.gather(*(api.put(path, json={"template": "base"}) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_timeline__explains_the_current_state(api):
    path = f"{ALL}/{(await create(api)).json()['id']}"
    await api.post(f"{path}/pause")
    told = (await api.get(f"{path}/timeline")).json()["items"]
    assert [one["type"] for one in told] == [
        "sandbox.starting",
        "sandbox.running",
        "sandbox.pausing",
        "sandbox.paused",
    ]
    assert all(one["reason"] and one["cause"] == "request" for one in told)
    assert {one["actor"]["kind"] for one in told} == {"key"}


async def test_port_url__leads_to_the_server_that_listens_there(api):
    sandbox = (await create(api)).json()
    path = f"{ALL}/{sandbox['id']}"
    told = (await api.get(f"{path}/ports/8000")).json()
    assert told["url"] == sandbox["urls"]["ports"].format(port=8000)
    assert sandbox["urls"]["mcp"].endswith(f"{path}/mcp/")
    await api.post(
        "/sandboxes/run-command",
        json={
            "sandbox_id": sandbox["id"],
            "command": "mkdir /tmp/w; cd /tmp/w; echo hello > index.html; exec python3 -m http.server",
            "background": True,
        },
    )

    async def fetched():
        host = told["url"].removeprefix("http://")
        answer = await api.get("/", headers={"Host": host})
        return answer.status_code == 200 and answer.text

    assert await until(fetched) == "hello\n"


async def test_metrics__report_the_usage(api):
    path = f"{ALL}/{(await create(api)).json()['id']}/metrics"

    async def told():
        return (await api.get(path)).json()["items"]

    used = await until(told, timeout=60, pause=0.1)
    assert 0 < used[0]["memory_used"] <= used[0]["memory_total"]


async def test_snapshot__creates_sandboxes_until_it_is_deleted(api):
    source = (await create(api)).json()["id"]
    await api.post(
        "/sandboxes/write-file", json={"sandbox_id": source, "path": "kept", "content": "as it was"}
    )
    taken = await api.post(f"{ALL}/{source}/snapshots", json={"name": "before lunch"})
    assert taken.status_code == 201
    snapshot = taken.json()
    assert (snapshot["state"], snapshot["name"]) == ("ready", "before lunch")
    assert (await api.get(f"/v1/snapshots/{snapshot['id']}")).json() == snapshot
    for path in (f"{ALL}/{source}/snapshots", "/v1/snapshots"):
        assert [one["id"] async for one in all_of(api, path)] == [snapshot["id"]]

    copy = (await create(api, template=snapshot["id"])).json()["id"]
    read = await api.post("/sandboxes/read-file", json={"sandbox_id": copy, "path": "kept"})
    assert read.json()["content"] == "as it was"

    assert (await api.delete(f"/v1/snapshots/{snapshot['id']}")).status_code == 204


async def test_fork__has_the_files_and_its_own_lifecycle(api):
    source = (await create(api, metadata={"a": "b"})).json()["id"]
    await api.post(
        "/sandboxes/write-file", json={"sandbox_id": source, "path": "kept", "content": "as it was"}
    )
    forked = await api.post(f"{ALL}/{source}/fork", json={"user_id": "someone"})
    assert forked.status_code == 201
    fork = forked.json()
    assert fork["id"] != source
    assert (fork["user_id"], fork["metadata"]) == ("someone", {"a": "b"})
    read = await api.post("/sandboxes/read-file", json={"sandbox_id": fork["id"], "path": "kept"})
    assert read.json()["content"] == "as it was"
