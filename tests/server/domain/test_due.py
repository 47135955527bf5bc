from dataclasses import replace

import pytest

from sandbox_server.domain.deadlines import (
    DEFAULT_RULES,
    Deadlines,
    Rules,
    extend_provider,
    keep_awake,
    queue,
    start,
    touch,
    want_back,
)
from sandbox_server.domain.due import Due, Why, idle_pause_at, next_due
from sandbox_server.domain.state import ENDED, OnTimeout, State, Target

from .lives import DAY, HOUR, MINUTE, NOON, SECOND, paused, running, starting, wanted

UNGUARDED = Rules(provider_timeout=365 * DAY)
LIMITED = Rules(provider_timeout=365 * DAY, longest_run=HOUR, quiet_after=30 * SECOND)


def due(row: Deadlines, *, rules: Rules = UNGUARDED) -> Due | None:
    """Look at a sandbox that stands at noon, with a dead man's switch that does not matter."""
    if row.state is State.RUNNING:
        row = extend_provider(row, NOON, rules=rules)
    return next_due(row, NOON, rules=rules)


def test_timeout__pauses_the_sandbox():
    assert due(running(timeout=HOUR)) == Due(NOON + HOUR, Why.EXPIRY, Target.PAUSED)


def test_timeout__deletes_the_sandbox_if_configured():
    row = running(timeout=HOUR, on_timeout=OnTimeout.DELETE)
    assert due(row) == Due(NOON + HOUR, Why.EXPIRY, Target.GONE)


def test_idle_timeout__pauses_the_sandbox():
    row = touch(running(idle_timeout=10 * MINUTE), NOON + MINUTE)
    assert due(row) == Due(NOON + 11 * MINUTE, Why.IDLE, Target.PAUSED)


def test_idle_timeout__a_keepalive_postpones_the_pause():
    row = keep_awake(running(idle_timeout=10 * MINUTE), NOON + 40 * MINUTE)
    assert due(row) == Due(NOON + 40 * MINUTE, Why.IDLE, Target.PAUSED)


def test_idle_timeout__an_old_keepalive_does_not_advance_the_pause():
    row = keep_awake(running(idle_timeout=10 * MINUTE), NOON - HOUR)
    assert idle_pause_at(row) == NOON + 10 * MINUTE


def test_timeout__applies_in_spite_of_a_keepalive():
    row = keep_awake(running(timeout=HOUR, idle_timeout=10 * MINUTE), NOON + DAY)
    assert due(row) == Due(NOON + HOUR, Why.EXPIRY, Target.PAUSED)


def test_idle_timeout__is_optional():
    assert idle_pause_at(running()) is None


@pytest.mark.parametrize("state", [state for state in State if state is not State.RUNNING])
def test_idle_timeout__applies_only_to_running_sandboxes(state):
    assert idle_pause_at(replace(running(idle_timeout=MINUTE), state=state)) is None


def test_retention__removes_a_paused_sandbox():
    row = replace(paused(), target=Target.PAUSED)
    assert row.retain_until
    assert due(row) == Due(row.retain_until, Why.RETENTION, Target.GONE)


def test_retention__removes_a_sandbox_that_hangs_in_its_resume():
    row = replace(paused(), state=State.RESUMING, retain_until=NOON - SECOND)
    assert due(row) == Due(NOON - SECOND, Why.RETENTION, Target.GONE)


def test_queue_timeout__ends_the_request():
    row = queue(wanted(), NOON, wait=5 * MINUTE)
    assert due(row) == Due(NOON + 5 * MINUTE, Why.QUEUE_DEADLINE, Target.GONE)


def test_queue_timeout__without_one_no_job_is_due():
    assert due(queue(wanted(), NOON, wait=None)) is None


def test_target__a_cancelled_request_is_due_at_once():
    row = replace(queue(wanted(), NOON, wait=None), target=Target.GONE)
    assert due(row) == Due(NOON, Why.UNSETTLED, Target.GONE)


def test_start_timeout__ends_a_hanging_start():
    row = replace(starting(), expires_at=NOON - SECOND)
    assert due(row) == Due(NOON - SECOND, Why.EXPIRY, Target.GONE)


@pytest.mark.parametrize(
    ("state", "target"),
    [
        (State.STARTING, Target.RUNNING),
        (State.RUNNING, Target.PAUSED),
        (State.PAUSING, Target.PAUSED),
        (State.RESUMING, Target.RUNNING),
        (State.RUNNING, Target.GONE),
        (State.PAUSED, Target.GONE),
        (State.STOPPING, Target.GONE),
    ],
)
def test_target__a_sandbox_in_another_state_is_due_at_once(state, target):
    row = replace(running(), state=state, target=target)
    assert due(row) == Due(NOON, Why.UNSETTLED, target)


def test_queue_timeout__limits_the_wait_of_a_resume():
    row = want_back(paused(), NOON, wait=10 * MINUTE)
    assert due(row) == Due(NOON + 10 * MINUTE, Why.QUEUE_DEADLINE, Target.PAUSED)


def test_timeout__a_pause_requested_in_time_prevents_the_deletion():
    row = running(on_timeout=OnTimeout.DELETE)
    pausing = replace(row, state=State.PAUSING, target=Target.PAUSED, expires_at=NOON - SECOND)
    assert due(pausing) == Due(NOON, Why.UNSETTLED, Target.PAUSED)


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("target", Target)
def test_due__an_ended_sandbox_has_nothing(state, target):
    assert due(replace(running(idle_timeout=MINUTE), state=state, target=target)) is None


def test_due__of_missed_deadlines_the_first_comes_first():
    row = running(timeout=HOUR, idle_timeout=10 * MINUTE, on_timeout=OnTimeout.DELETE)
    row = extend_provider(row, NOON, rules=UNGUARDED)
    found = next_due(row, NOON + DAY, rules=UNGUARDED)
    assert found == Due(NOON + 10 * MINUTE, Why.IDLE, Target.PAUSED)


def test_due__of_simultaneous_deadlines_the_final_one_counts():
    row = running(timeout=HOUR, idle_timeout=HOUR, on_timeout=OnTimeout.DELETE)
    assert due(row) == Due(NOON + HOUR, Why.EXPIRY, Target.GONE)


def test_provider_timeout__is_extended_at_half_time():
    rules = Rules(provider_timeout=10 * MINUTE)
    assert due(running(), rules=rules) == Due(
        NOON + 5 * MINUTE, Why.PROVIDER_TIMEOUT, Target.RUNNING
    )


def test_provider_timeout__is_not_extended_for_a_sandbox_to_be_paused():
    row = replace(running(), target=Target.PAUSED)
    assert due(row, rules=Rules(provider_timeout=SECOND)) == Due(NOON, Why.UNSETTLED, Target.PAUSED)


def test_provider_timeout__is_not_extended_at_the_maximum_run():
    rules = Rules(provider_timeout=DAY, longest_run=HOUR, pause_takes=MINUTE)
    found = due(running(timeout=DAY), rules=rules)
    assert found is not None
    assert found.why is Why.LONGEST_RUN


def test_maximum_run__is_avoided_at_an_idle_moment():
    row = touch(running(timeout=DAY), NOON + 40 * MINUTE)
    assert due(row, rules=LIMITED) == Due(NOON + 50 * MINUTE, Why.LONGEST_RUN, Target.RUNNING)


def test_maximum_run__a_busy_moment_postpones_the_refresh():
    row = touch(running(timeout=DAY), NOON + 51 * MINUTE)
    assert due(row, rules=LIMITED) == Due(
        NOON + 51 * MINUTE + 30 * SECOND, Why.LONGEST_RUN, Target.RUNNING
    )


def test_maximum_run__a_keepalive_postpones_the_refresh():
    row = keep_awake(running(timeout=DAY), NOON + 55 * MINUTE)
    assert due(row, rules=LIMITED) == Due(NOON + 55 * MINUTE, Why.LONGEST_RUN, Target.RUNNING)


def test_maximum_run__is_never_exceeded_even_without_an_idle_moment():
    row = keep_awake(touch(running(timeout=DAY), NOON + HOUR), NOON + DAY)
    assert due(row, rules=LIMITED) == Due(NOON + 58 * MINUTE, Why.LONGEST_RUN, Target.RUNNING)


def test_maximum_run__one_of_minutes_leaves_time_between_pauses():
    rules = replace(LIMITED, longest_run=2 * MINUTE)
    row = start(starting(), NOON, rules=rules)
    assert due(row, rules=rules) == Due(NOON + MINUTE, Why.LONGEST_RUN, Target.RUNNING)


def test_maximum_run__without_one_there_is_no_refresh():
    assert DEFAULT_RULES.longest_run is None
    found = due(running(timeout=DAY))
    assert found is not None
    assert found.why is Why.EXPIRY


def test_timeout__deletes_a_sandbox_whose_provider_cannot_pause():
    rules = Rules(provider_timeout=365 * DAY, can_pause=False)
    row = running(timeout=HOUR, idle_timeout=MINUTE)
    assert due(row, rules=rules) == Due(NOON + HOUR, Why.EXPIRY, Target.GONE)
