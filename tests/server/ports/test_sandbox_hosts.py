"""Access control of ports, and the error responses."""

import asyncio

import pytest

from sandbox_server.proxy.targets import PortTarget, path_of
from tests.engine.polling import until
from tests.server.support.full_server import PORT, inside, new_sandbox
from tests.server.support.request_recorder import Recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]

BROWSER = {"Accept": "text/html,*/*", "Sec-Fetch-Mode": "navigate"}
ABSENT = "0" * 20


def targets(outside, sandbox_id, port=PORT, **headers):
    """Return a client and a path for the host form and the path form of a port."""
    return [
        (outside.at(sandbox_id, port, **headers), "/a"),
        (
            outside.api(**headers),
            f"{path_of(PortTarget(sandbox_id, port))}/a",
        ),
    ]


async def statuses(outside, sandbox_id, port=PORT, **headers):
    found = []
    for client, path in targets(outside, sandbox_id, port, **headers):
        async with client as caller:
            answer = await caller.get(path)
            found.append((answer.status_code, answer.json().get("code")))
    return found


async def test_port_access__requires_a_key(outside, sandbox_id):
    for headers in ({}, {"Authorization": "Bearer mine"}, {"Cookie": "sandbox-preview=sbt_no"}):
        async with outside.at(sandbox_id, PORT, **headers) as stranger:
            refused = await stranger.get("/")
            page = await stranger.get("/", headers=BROWSER)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert (page.status_code, page.headers["Content-Type"]) == (401, "text/html; charset=utf-8")


async def test_port_access__a_read_only_key_is_refused(outside, sandbox_id):
    _, key = await outside.new_key(scopes=["read"])
    refused = await statuses(outside, sandbox_id, **{"X-API-Key": key})
    assert refused == [(403, "scope-missing")] * 2


async def test_tenancy__another_tenants_sandbox_is_not_found(outside, sandbox_id):
    async with outside.api() as api:
        await api.put("/v1/tenants/other", json={})
    _, key = await outside.new_key(tenant="other")
    for each in (sandbox_id, ABSENT):
        refused = await statuses(outside, each, **{"X-API-Key": key})
        assert refused == [(404, "sandbox-not-found")] * 2


async def test_port_access__a_closed_port_is_a_distinct_error(outside, sandbox_id):
    async with outside.at(sandbox_id, 4999, **{"X-API-Key": outside.key}) as caller:
        page, posted = await asyncio.gather(
            caller.get("/", headers={**BROWSER, "User-Agent": "Mozilla/5.0"}),
            caller.post("/", content=b"x" * 100_000),
        )
    assert page.status_code == posted.status_code == 502
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "Nothing listens on port 4999" in page.text
    assert posted.json()["code"] == "port-not-open"


async def test_sandbox_host__an_invalid_sandbox_host_does_not_reach_the_api(outside):
    for label in (f"0-{ABSENT}", f"70000-{ABSENT}", "3000-x", "3000-", f"a.3000-{ABSENT}"):
        async with outside.api(Host=f"{label}.{outside.host}") as api:
            answer = await api.get("/healthz")
        assert (answer.status_code, answer.json()["code"]) == (404, "sandbox-not-found"), label


async def test_sandbox_host__other_hosts_reach_the_api(outside):
    for host in (
        "127.0.0.1",
        "[::1]:1",
        "localhost",
        "3000.localhost",
        f"3000-{ABSENT}.example.org",
    ):
        async with outside.api(Host=host) as api:
            assert (await api.get("/healthz")).status_code == 200, host


async def test_sandbox_host__does_not_expose_the_api(outside, sandbox_id):
    async with outside.at(sandbox_id, PORT, **{"X-API-Key": outside.key}) as caller:
        for path in ("/healthz", "/v1/sandboxes", "/docs", "/metrics"):
            answer = await caller.get(path)
            assert Recorded.of(answer.text).target == path
            assert "x-request-id" not in answer.headers


async def test_auto_resume__concurrent_requests_resume_a_paused_sandbox_once(outside):
    async with new_sandbox(outside) as sandbox_id, outside.api() as api:
        await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
        async with outside.at(sandbox_id, PORT, **{"X-API-Key": outside.key}) as caller:
            answers = await asyncio.gather(*(caller.post("/", content=b"x") for _ in range(20)))
        timeline = (await api.get(f"/v1/sandboxes/{sandbox_id}/timeline")).json()["items"]
    assert {answer.status_code for answer in answers} == {200}
    assert [one["type"] for one in timeline].count("sandbox.resuming") == 1


async def test_auto_resume__disabled_leaves_the_sandbox_paused(outside):
    async with new_sandbox(outside, auto_resume=False) as sandbox_id, outside.api() as api:
        assert (
            await statuses(outside, sandbox_id, **{"X-API-Key": outside.key}) == [(200, None)] * 2
        )
        await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
        refused = await statuses(outside, sandbox_id, **{"X-API-Key": outside.key})
    assert refused == [(409, "sandbox-paused")] * 2


async def test_port_access__a_deleted_sandbox_is_gone_at_once(outside):
    async with new_sandbox(outside) as sandbox_id, outside.api() as api:
        key = {"X-API-Key": outside.key}
        assert await statuses(outside, sandbox_id, **key) == [(200, None)] * 2
        await api.delete(f"/v1/sandboxes/{sandbox_id}")
        refused = await statuses(outside, sandbox_id, **key)
    assert [status for status, _ in refused] == [409] * 2


async def test_port_access__a_pause_outside_this_server_answers_503(
    outside,
):
    async with new_sandbox(outside) as sandbox_id:
        await (await inside(outside, sandbox_id)).pause()
        refused = await statuses(outside, sandbox_id, **{"X-API-Key": outside.key})
    assert refused == [(503, "backend-unavailable")] * 2


async def test_activity__traffic_keeps_a_sandbox_awake(outside):
    async with (
        new_sandbox(outside, idle_timeout_s=20) as sandbox_id,
        outside.api() as api,
        outside.at(sandbox_id, PORT, **{"X-API-Key": outside.key}) as caller,
        caller.stream("GET", "/events") as answer,
    ):
        lines = answer.aiter_lines()
        assert await anext(lines) == "data: one"

        async def last_activity():
            return (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()["last_activity_at"]

        before = await last_activity()
        async with outside.at(sandbox_id, PORT, **{"X-API-Key": outside.key}) as other:

            async def is_later():
                await other.post("/", content=b"x" * 300_000)
                return await last_activity() > before

            await until(is_later, timeout=30)
