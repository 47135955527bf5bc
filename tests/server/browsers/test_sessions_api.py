"""Browser sessions through the API, in sandboxes of a real engine."""

import asyncio

import pytest
from sqlalchemy import select, update

from sandbox_server.db.models import Backend, BrowserSession, Sandbox
from sandbox_server.domain.computers.browsers import new_session_id
from sandbox_server.jobs.kinds import BROWSER_SESSION
from sandbox_server.jobs.repository import JobRepository
from tests.engine.polling import until
from tests.server.http.test_problems import assert_problem

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

MANY = 20


async def create(api, wait=30, **fields):
    made = await api.post(
        "/v1/browsers", params={"wait": wait}, json={"template": "base", **fields}
    )
    assert made.status_code in {201, 202}, made.text
    return made.json()


def without_urls(session):
    """Leave out the URLs, which have another token in each answer."""
    return {name: value for name, value in session.items() if not name.endswith("_url")}


async def ended(api, browser_id, *, state):
    """Wait for the end of a session and of its sandbox."""

    async def is_over():
        session = (await api.get(f"/v1/browsers/{browser_id}")).json()
        sandbox = (await api.get(f"/v1/sandboxes/{session['sandbox_id']}")).json()
        return session["state"] == state and sandbox["state"] == "stopped"

    await until(is_over, timeout=60)
    return (await api.get(f"/v1/browsers/{browser_id}")).json()


async def test_browser__its_session_runs_until_it_is_released(outside):
    async with outside.api() as api:
        made = await create(api, metadata={"team": "blue"}, timeout_s=600)
        assert (made["state"], made["metadata"]) == ("running", {"team": "blue"})
        assert made["connect_by"] < made["expires_at"]
        path = f"/v1/browsers/{made['id']}"
        assert without_urls((await api.get(path)).json()) == without_urls(made)
        assert made["cdp_url"].startswith(f"ws://{outside.host}/browser/sbb_")
        sandbox = (await api.get(f"/v1/sandboxes/{made['sandbox_id']}")).json()
        assert sandbox["session_id"] == f"browser-session/{made['id']}"
        assert sandbox["on_timeout"] == "delete"

        released = (await api.post(f"{path}/release")).json()
        assert (released["state"], released["connect_by"]) == ("completed", None)
        session = await ended(api, made["id"], state="completed")
        assert (await api.post(f"{path}/release")).json() == session
        events = await api.get(
            f"/v1/sandboxes/{made['sandbox_id']}/events", params={"follow": "false"}
        )
        assert "Released by API request." in events.text


async def test_browser__allowed_domains_limit_the_network_of_its_sandbox(outside):
    async with outside.api() as api:
        made = await create(api, wait=0, allowed_domains=["a.example"])
        async with outside.components.sessions() as session:
            sandbox = await session.get_one(Sandbox, made["sandbox_id"])
        assert sandbox.network == {
            "allow_out": ["a.example", "*.a.example"],
            "deny_out": ["0.0.0.0/0"],
        }
        await api.post(f"/v1/browsers/{made['id']}/release")
        refused = await api.post("/v1/browsers", json={"allowed_domains": ["a b"]})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid-request")


async def test_browser__deleting_its_sandbox_ends_the_session(outside):
    async with outside.api() as api:
        made = await create(api)
        await api.delete(f"/v1/sandboxes/{made['sandbox_id']}")
        session = await ended(api, made["id"], state="completed")
        assert "Deleted by API request." in session["state_reason"]


async def test_browser__its_timeout_ends_the_session_and_deletes_its_sandbox(outside):
    sessions = outside.components.sessions
    async with outside.api() as api:
        made = await create(api)
        async with sessions.begin() as session:
            mine = update(BrowserSession).where(BrowserSession.id == made["id"])
            await session.execute(mine.values(expires_at=BrowserSession.created_at))
            await JobRepository(session).due(BROWSER_SESSION, made["id"])
        session = await ended(api, made["id"], state="timed_out")
        assert "timeout" in session["state_reason"]


async def test_browser__an_idempotency_key_creates_one_session(outside):
    async with outside.api(**{"Idempotency-Key": new_session_id()}) as api:
        one, other = await asyncio.gather(create(api), create(api))
        assert one["id"] == other["id"]
        await api.post(f"/v1/browsers/{one['id']}/release")


async def test_browser__an_unknown_session_is_not_found(outside):
    async with outside.api() as api:
        for text in (new_session_id(), "x"):
            answer = await api.get(f"/v1/browsers/{text}")
            assert_problem(answer, status=404, code="browser-session-not-found")


async def test_browser__sessions_of_other_tenants_are_not_visible(outside):
    async with outside.api() as api:
        made = await create(api)
        await api.put("/v1/tenants/stranger", json={})
        _, key = await outside.new_key(tenant="stranger", scopes=["sandboxes"])
        async with outside.api(**{"X-API-Key": key}) as stranger:
            assert (await stranger.get(f"/v1/browsers/{made['id']}")).status_code == 404
            assert (await stranger.post(f"/v1/browsers/{made['id']}/release")).status_code == 404
            assert (await stranger.get("/v1/browsers")).json()["items"] == []
        await api.post(f"/v1/browsers/{made['id']}/release")


async def test_browser__sessions_queue_and_each_gets_its_turn(outside):
    sessions = outside.components.sessions
    async with sessions.begin() as session:
        capacity = await session.scalar(select(Backend.capacity))
        await session.execute(update(Backend).values(capacity=3))
    try:
        async with outside.api() as api:
            made = await asyncio.gather(*(create(api, wait=0) for _ in range(MANY)))
            assert len({each["id"] for each in made}) == MANY

            async def everyone_had_a_turn():
                # Pending ones first: one may start between the two requests.
                rest = await api.get("/v1/browsers", params={"limit": 1, "state": "pending"})
                page = await api.get("/v1/browsers", params={"limit": MANY, "state": "running"})
                for each in page.json()["items"]:
                    await api.post(f"/v1/browsers/{each['id']}/release")
                return not rest.json()["items"] and not page.json()["items"]

            await until(everyone_had_a_turn, timeout=120)
            for each in made:
                session = (await api.get(f"/v1/browsers/{each['id']}")).json()
                assert (session["state"], session["started_at"] is None) == ("completed", False)
    finally:
        async with sessions.begin() as session:
            await session.execute(update(Backend).values(capacity=capacity))
