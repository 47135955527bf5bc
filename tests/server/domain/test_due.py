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


def test_a_sandbox_whose_time_is_up_is_paused():
    assert due(running(timeout=HOUR)) == Due(NOON + HOUR, Why.EXPIRY, Target.PAUSED)


def test_a_sandbox_whose_time_is_up_is_deleted_if_it_is_to_be():
    row = running(timeout=HOUR, on_timeout=OnTimeout.DELETE)
    assert due(row) == Due(NOON + HOUR, Why.EXPIRY, Target.GONE)


def test_an_idle_sandbox_is_paused():
    row = touch(running(idle_timeout=10 * MINUTE), NOON + MINUTE)
    assert due(row) == Due(NOON + 11 * MINUTE, Why.IDLE, Target.PAUSED)


def test_a_sandbox_that_is_kept_awake_is_not_paused_for_being_idle():
    row = keep_awake(running(idle_timeout=10 * MINUTE), NOON + 40 * MINUTE)
    assert due(row) == Due(NOON + 40 * MINUTE, Why.IDLE, Target.PAUSED)


def test_a_lease_that_ended_long_ago_does_not_bring_the_idle_pause_forward():
    row = keep_awake(running(idle_timeout=10 * MINUTE), NOON - HOUR)
    assert idle_pause_at(row) == NOON + 10 * MINUTE


def test_a_sandbox_that_is_kept_awake_still_ends_when_its_time_is_up():
    row = keep_awake(running(timeout=HOUR, idle_timeout=10 * MINUTE), NOON + DAY)
    assert due(row) == Due(NOON + HOUR, Why.EXPIRY, Target.PAUSED)


def test_a_sandbox_without_an_idle_timeout_is_never_idle():
    assert idle_pause_at(running()) is None


@pytest.mark.parametrize("state", [state for state in State if state is not State.RUNNING])
def test_only_a_running_sandbox_has_an_idle_pause_ahead(state):
    assert idle_pause_at(replace(running(idle_timeout=MINUTE), state=state)) is None


def test_a_paused_sandbox_is_removed_when_its_retention_is_over():
    row = replace(paused(), target=Target.PAUSED)
    assert row.retain_until
    assert due(row) == Due(row.retain_until, Why.RETENTION, Target.GONE)


def test_a_sandbox_that_hangs_in_its_resume_is_removed_when_its_retention_is_over():
    row = replace(paused(), state=State.RESUMING, retain_until=NOON - SECOND)
    assert due(row) == Due(NOON - SECOND, Why.RETENTION, Target.GONE)


def test_a_request_that_waited_too_long_leaves_the_queue():
    row = queue(wanted(), NOON, wait=5 * MINUTE)
    assert due(row) == Due(NOON + 5 * MINUTE, Why.QUEUE_DEADLINE, Target.GONE)


def test_a_request_without_a_queue_deadline_waits_for_room_and_for_no_job():
    assert due(queue(wanted(), NOON, wait=None)) is None


def test_a_queued_sandbox_that_is_no_longer_wanted_is_due_at_once():
    row = replace(queue(wanted(), NOON, wait=None), target=Target.GONE)
    assert due(row) == Due(NOON, Why.UNSETTLED, Target.GONE)


def test_a_sandbox_that_hangs_in_its_start_is_given_up_when_its_time_is_up():
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
def test_a_sandbox_that_is_not_what_is_wanted_is_due_at_once(state, target):
    row = replace(running(), state=state, target=target)
    assert due(row) == Due(NOON, Why.UNSETTLED, target)


def test_a_paused_sandbox_that_is_wanted_back_waits_for_a_place_until_its_wait_is_over():
    row = want_back(paused(), NOON, wait=10 * MINUTE)
    assert due(row) == Due(NOON + 10 * MINUTE, Why.QUEUE_DEADLINE, Target.PAUSED)


def test_a_pause_that_was_asked_for_in_time_saves_a_sandbox_from_deletion():
    row = running(on_timeout=OnTimeout.DELETE)
    pausing = replace(row, state=State.PAUSING, target=Target.PAUSED, expires_at=NOON - SECOND)
    assert due(pausing) == Due(NOON, Why.UNSETTLED, Target.PAUSED)


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("target", Target)
def test_nothing_is_due_of_a_sandbox_that_has_ended(state, target):
    assert due(replace(running(idle_timeout=MINUTE), state=state, target=target)) is None


def test_of_what_was_missed_while_no_server_lived_the_first_comes_first():
    row = running(timeout=HOUR, idle_timeout=10 * MINUTE, on_timeout=OnTimeout.DELETE)
    row = extend_provider(row, NOON, rules=UNGUARDED)
    found = next_due(row, NOON + DAY, rules=UNGUARDED)
    assert found == Due(NOON + 10 * MINUTE, Why.IDLE, Target.PAUSED)


def test_of_two_deadlines_at_one_instant_the_final_one_counts():
    row = running(timeout=HOUR, idle_timeout=HOUR, on_timeout=OnTimeout.DELETE)
    assert due(row) == Due(NOON + HOUR, Why.EXPIRY, Target.GONE)


def test_the_providers_timeout_is_extended_when_half_of_it_is_over():
    rules = Rules(provider_timeout=10 * MINUTE)
    assert due(running(), rules=rules) == Due(
        NOON + 5 * MINUTE, Why.PROVIDER_TIMEOUT, Target.RUNNING
    )


def test_the_providers_timeout_is_not_extended_for_who_is_to_be_paused():
    row = replace(running(), target=Target.PAUSED)
    assert due(row, rules=Rules(provider_timeout=SECOND)) == Due(NOON, Why.UNSETTLED, Target.PAUSED)


def test_at_the_providers_maximum_there_is_nothing_to_extend():
    rules = Rules(provider_timeout=DAY, longest_run=HOUR, pause_takes=MINUTE)
    found = due(running(timeout=DAY), rules=rules)
    assert found is not None
    assert found.why is Why.LONGEST_RUN


def test_the_providers_maximum_is_forestalled_at_a_quiet_moment():
    row = touch(running(timeout=DAY), NOON + 40 * MINUTE)
    assert due(row, rules=LIMITED) == Due(NOON + 50 * MINUTE, Why.LONGEST_RUN, Target.RUNNING)


def test_a_busy_moment_near_the_providers_maximum_is_waited_out():
    row = touch(running(timeout=DAY), NOON + 51 * MINUTE)
    assert due(row, rules=LIMITED) == Due(
        NOON + 51 * MINUTE + 30 * SECOND, Why.LONGEST_RUN, Target.RUNNING
    )


def test_a_lease_near_the_providers_maximum_is_waited_out():
    row = keep_awake(running(timeout=DAY), NOON + 55 * MINUTE)
    assert due(row, rules=LIMITED) == Due(NOON + 55 * MINUTE, Why.LONGEST_RUN, Target.RUNNING)


def test_the_providers_maximum_is_never_hit_even_if_no_moment_is_quiet():
    row = keep_awake(touch(running(timeout=DAY), NOON + HOUR), NOON + DAY)
    assert due(row, rules=LIMITED) == Due(NOON + 58 * MINUTE, Why.LONGEST_RUN, Target.RUNNING)


def test_a_maximum_of_minutes_leaves_time_to_work_between_two_pauses():
    rules = replace(LIMITED, longest_run=2 * MINUTE)
    row = start(starting(), NOON, rules=rules)
    assert due(row, rules=rules) == Due(NOON + MINUTE, Why.LONGEST_RUN, Target.RUNNING)


def test_no_maximum_means_no_pause_for_it():
    assert DEFAULT_RULES.longest_run is None
    found = due(running(timeout=DAY))
    assert found is not None
    assert found.why is Why.EXPIRY
