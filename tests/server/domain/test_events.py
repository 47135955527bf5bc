from dataclasses import replace
from typing import get_args

import pytest
from pydantic import ValidationError

from sandbox_server.domain.deadlines import Deadlines, connect, end
from sandbox_server.domain.due import Why
from sandbox_server.domain.events import (
    CAUSES,
    SERVER,
    Actor,
    Cause,
    Entered,
    Paused,
    Running,
    Silent,
    deadline_changed,
    entered,
    read_event,
)
from sandbox_server.domain.state import State

from .lives import HOUR, MINUTE, NOON, paused, running

KEY = Actor(kind="key", id="0mb2k8w1x4q7zk20fq3a")


def enter(row: Deadlines, *, reason: str = "Somebody asked for it.") -> Entered:
    return entered(row, sandbox_id="abc", cause=Cause.REQUEST, actor=KEY, reason=reason)


def with_all_deadlines(state: State) -> Deadlines:
    return replace(paused(), state=state, expires_at=NOON + HOUR)


@pytest.mark.parametrize("state", State)
def test_event__each_state_has_one_with_its_name(state):
    event = enter(with_all_deadlines(state))
    assert event.type == f"sandbox.{state}"
    assert (event.cause, event.actor) == (Cause.REQUEST, KEY)


def test_event__a_pause_or_end_contains_the_former_deadlines():
    had = running(timeout=HOUR, idle_timeout=10 * MINUTE)
    for state in (State.PAUSING, State.STOPPING, State.STOPPED, State.FAILED):
        event = entered(
            end(had, state),
            sandbox_id="abc",
            cause=Cause.IDLE,
            actor=SERVER,
            reason="Idle.",
            before=had,
        )
        told = event.model_dump(mode="json")
        assert told["last_activity_at"] == "2026-11-18T12:00:00Z"
        assert told["idle_timeout_s"] == 600
        assert told["idle_pause_at"] == "2026-11-18T12:10:00Z"
        assert told["expires_at"] == "2026-11-18T13:00:00Z"
        assert told["timeout_s"] == 3600


def test_event__there_are_as_many_as_states():
    assert len(get_args(Entered)) == len(State)


@pytest.mark.parametrize("state", State)
def test_event__can_be_read_back_from_storage(state):
    event = enter(with_all_deadlines(state))
    assert read_event(event.model_dump(mode="json")) == event


def test_event__one_of_a_newer_server_can_be_read():
    stored = enter(running()).model_dump(mode="json")
    assert read_event({**stored, "mood": "sunny"}) == enter(running())


def test_running_event__contains_expiry_and_idle_pause():
    event = enter(running(timeout=HOUR, idle_timeout=10 * MINUTE))
    assert isinstance(event, Running)
    assert (event.expires_at, event.idle_pause_at) == (NOON + HOUR, NOON + 10 * MINUTE)


def test_paused_event__contains_remaining_time_and_retention():
    row = paused(timeout=HOUR, after=20 * MINUTE)
    event = enter(row)
    assert isinstance(event, Paused)
    assert (event.remaining_s, event.retain_until) == (2400, row.retain_until)


def test_running_event__requires_a_deadline():
    with pytest.raises(ValidationError, match="expires_at"):
        enter(replace(running(), expires_at=None))


@pytest.mark.parametrize("state", State)
def test_event__requires_a_reason(state):
    with pytest.raises(ValidationError, match="reason"):
        enter(with_all_deadlines(state), reason="")


def test_timeout_event__contains_the_difference():
    row = running(timeout=HOUR)
    event = deadline_changed(row, connect(row, NOON, timeout=2 * HOUR), sandbox_id="abc", actor=KEY)
    assert event is not None
    assert event.expires_at == NOON + 2 * HOUR
    assert "1 h more" in event.reason


def test_timeout_event__is_omitted_without_a_change():
    row = running()
    assert deadline_changed(row, row, sandbox_id="abc", actor=KEY) is None


def test_event__an_unresponsive_sandbox_is_reported():
    event = Silent(
        sandbox_id="abc",
        cause=Cause.PROVIDER,
        actor=SERVER,
        reason="It has not answered for 45 s.",
        last_answer_at=NOON,
    )
    assert read_event(event.model_dump(mode="json")) == event


def test_event__every_due_reason_is_a_cause():
    assert set(CAUSES) == set(Why)
