"""Event streams over sockets."""

import signal

import pytest
import uvicorn
from sqlalchemy import delete, update
from sse_starlette.sse import AppStatus

from sandbox_server.db.models import ApiKey, Event, Sandbox, Stream
from sandbox_server.domain.events import SERVER, Cause, Silent
from sandbox_server.domain.state import State
from sandbox_server.log.events import EventRepository
from tests.server.http.test_problems import assert_problem
from tests.server.support.event_reader import following
from tests.server.support.rows import add_event, add_sandbox, find_tenant, now

EVENTS = "/v1/events"


@pytest.fixture
async def tenant_id(reader, sessions):
    return await find_tenant(sessions)


@pytest.fixture
async def row(sessions, tenant_id):
    return await add_sandbox(sessions, tenant_id)


def test_event_stream__a_signal_to_another_server_of_the_process_ends_no_streams():
    uvicorn.Server(uvicorn.Config("nothing")).handle_exit(signal.SIGTERM, None)
    assert not AppStatus.should_exit


async def test_event_stream__sends_past_events_and_then_new_ones(reader, sessions, tenant_id, row):
    await add_event(sessions, tenant_id, row.id, "First.")
    async with following(reader, EVENTS) as stream:
        first = await anext(stream)
        assert (first.id, first.data["reason"]) == (1, "First.")
        for number in (2, 3):
            await add_event(sessions, tenant_id, row.id, f"Number {number}.")
            told = await anext(stream)
            assert (told.id, told.data["reason"]) == (number, f"Number {number}.")
    listed = (await reader.get(EVENTS)).json()["items"]
    assert [told.data for told in stream.told] == listed


@pytest.fixture
async def sample_events(sessions, tenant_id, row):
    """Append four events of two types."""
    for reason in ("First.", "Second.", "Third."):
        await add_event(sessions, tenant_id, row.id, reason)
    async with sessions.begin() as session:
        silent = Silent(
            sandbox_id=row.id,
            cause=Cause.PROVIDER,
            actor=SERVER,
            reason="Fourth.",
            last_answer_at=None,
        )
        await EventRepository(session).append(tenant_id, silent)


async def end(sessions, row):
    async with sessions.begin() as session:
        ended = update(Sandbox).where(Sandbox.id == row.id)
        await session.execute(ended.values(state=State.STOPPED, ended_at=now()))


@pytest.mark.usefixtures("sample_events")
@pytest.mark.parametrize(
    ("asked", "came"),
    [
        ({}, ["First.", "Second.", "Third.", "Fourth."]),
        ({"tail": 3, "type": "sandbox.stopping"}, ["First.", "Second.", "Third."]),
        ({"tail": 0}, []),
        ({"type": ["sandbox.stopping", "sandbox.silent"], "after": 3}, ["Fourth."]),
        ({"type": "sandbox.", "cause": "expiry"}, ["First.", "Second.", "Third."]),
    ],
    ids=["all", "tail-of-some", "from-now", "types", "cause"],
)
async def test_event_stream__applies_the_start_position_and_filters(
    reader, sessions, tenant_id, row, asked, came
):
    listed = (await reader.get(EVENTS, params={**asked, "limit": 10})).json()["items"]
    if "tail" not in asked:
        assert [event["reason"] for event in listed] == came
    async with following(reader, EVENTS, params=asked) as stream:
        await add_event(sessions, tenant_id, row.id, "Last.")
        for reason in (*came, "Last."):
            assert (await anext(stream)).data["reason"] == reason


@pytest.mark.usefixtures("sample_events")
async def test_event_stream__last_event_id_has_precedence_over_after(reader):
    async with following(reader, EVENTS, after=3, params={"after": 1, "tail": 4}) as stream:
        assert (await anext(stream)).data["reason"] == "Fourth."


@pytest.mark.usefixtures("sample_events")
async def test_event_stream__reports_removed_events_as_a_gap(reader, sessions, tenant_id):
    async with sessions.begin() as session:
        await session.execute(delete(Event).where(Event.seq <= 2))
        await session.execute(update(Stream).values(removed_seq=2, removed_at=now()))
    async with following(reader, EVENTS, after=1) as stream:
        gap = await anext(stream)
        assert (gap.id, gap.data) == (2, {"type": "gap", "after": 1, "oldest": 3})
        assert (await anext(stream)).id == 3
    async with following(reader, EVENTS, after=2) as stream:
        assert (await anext(stream)).id == 3
    async with following(reader, EVENTS, params={"tail": 10}) as stream:
        assert (await anext(stream)).id == 3


@pytest.mark.usefixtures("sample_events")
async def test_event_stream__an_unknown_number_returns_a_gap_and_all_events(reader):
    async with following(reader, EVENTS, after=1000) as stream:
        gap = await anext(stream)
        assert (gap.id, gap.data) == (0, {"type": "gap", "after": 1000, "oldest": 1})
        assert [(await anext(stream)).id for _ in range(4)] == [1, 2, 3, 4]


@pytest.mark.usefixtures("sample_events")
async def test_event_stream__a_sandbox_newer_than_the_removed_events_has_no_gap(
    reader, sessions, tenant_id
):
    async with sessions.begin() as session:
        await session.execute(delete(Event))
        await session.execute(update(Stream).values(removed_seq=4, removed_at=now()))
    young = await add_sandbox(sessions, tenant_id)
    await add_event(sessions, tenant_id, young.id)
    async with following(reader, f"/v1/sandboxes/{young.id}/events") as stream:
        assert (await anext(stream)).id == 5


async def test_event_stream__of_a_sandbox_ends_with_it_and_returns_204_afterwards(
    reader, sessions, tenant_id, row
):
    path = f"/v1/sandboxes/{row.id}/events"
    async with following(reader, path) as stream:
        await add_event(sessions, tenant_id, row.id, "First.")
        await anext(stream)
        await end(sessions, row)
        await add_event(sessions, tenant_id, row.id, "Last.")
        assert [told.data["reason"] for told in await stream.rest()] == ["First.", "Last."]
    headers = {"Accept": "text/event-stream"}
    answer = await reader.get(path, headers={**headers, "Last-Event-ID": "2"})
    assert (answer.status_code, answer.content) == (204, b"")
    again = await reader.get(path, headers={**headers, "Last-Event-ID": "1"})
    assert "Last." in again.text


async def test_event_stream__sends_headers_and_a_comment_at_once(reader):
    async with reader.stream("GET", EVENTS, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        assert "content-length" not in answer.headers
        first = await anext(answer.aiter_text())
    assert first.startswith(":")
    assert "retry: " in first
    assert "event:" not in first


@pytest.mark.parametrize("sent", ["x", "-1", "1.5", str(10**30), "1 2"])
async def test_event_stream__invalid_numbers_are_refused(reader, sent):
    headers = {"Accept": "text/event-stream", "Last-Event-ID": sent}
    answer = await reader.get(EVENTS, headers=headers)
    assert_problem(answer, status=422, code="validation-failed")


async def test_event_stream__access_is_checked_before_the_stream_starts(
    reader, port, make_key, sessions, row
):
    headers = {"Accept": "text/event-stream"}
    path = f"/v1/sandboxes/{row.id}/events"
    other = {**headers, "X-API-Key": await make_key(tenant="other")}
    answer = await reader.get(path, headers=other)
    assert_problem(answer, status=404, code="sandbox-not-found")
    answer = await reader.get(path, headers={**headers, "X-API-Key": "none"})
    assert_problem(answer, status=401, code="unauthenticated")


async def test_event_stream__ends_soon_after_its_key_is_revoked(reader, sessions):
    async with following(reader, EVENTS) as stream:
        async with sessions.begin() as session:
            await session.execute(update(ApiKey).values(revoked_at=now()))
        assert await stream.rest() == []
    answer = await reader.get(EVENTS, headers={"Accept": "text/event-stream"})
    assert answer.status_code == 401
