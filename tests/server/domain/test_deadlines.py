from dataclasses import replace

from sandbox_server.domain.deadlines import (
    NOTHING,
    Rules,
    connect,
    extend_provider,
    fail_pause,
    keep_awake,
    pause,
    queue,
    refresh,
    requeue,
    resume,
    set_timeout,
    start,
    touch,
    want_back,
)
from sandbox_server.domain.state import State, Target

from .lives import DAY, HOUR, MINUTE, NOON, SECOND, paused, running, starting, wanted


def test_waiting_in_the_queue_does_not_count_towards_the_deadline():
    started = start(starting(timeout=HOUR), NOON + 10 * MINUTE)
    assert started.expires_at == NOON + 10 * MINUTE + HOUR
    assert started.queue_expires_at is None


def test_a_start_that_never_finishes_has_a_deadline():
    assert starting(timeout=HOUR).expires_at == NOON + HOUR


def test_connecting_never_shortens_a_deadline():
    row = running(timeout=HOUR)
    assert connect(row, NOON, timeout=MINUTE).expires_at == NOON + HOUR
    assert connect(row, NOON, timeout=2 * HOUR).expires_at == NOON + 2 * HOUR


def test_connecting_without_a_timeout_gives_the_sandboxs_own_anew():
    later = NOON + 30 * MINUTE
    assert connect(running(timeout=HOUR), later).expires_at == later + HOUR


def test_connecting_to_a_paused_sandbox_never_shortens_what_is_left_of_its_time():
    row = paused(timeout=HOUR, after=20 * MINUTE)
    assert connect(row, NOON, timeout=MINUTE).remaining == 40 * MINUTE
    assert connect(row, NOON, timeout=50 * MINUTE).remaining == 50 * MINUTE


def test_time_given_while_it_starts_is_still_there_when_it_runs():
    connected = connect(starting(timeout=HOUR), NOON, timeout=3 * HOUR)
    assert start(connected, NOON + MINUTE).expires_at == NOON + MINUTE + 3 * HOUR


def test_time_given_while_it_starts_is_still_there_after_the_provider_had_no_room():
    connected = requeue(connect(starting(timeout=HOUR), NOON, timeout=3 * HOUR))
    assert start(connected, NOON + DAY).expires_at == NOON + DAY + 3 * HOUR


def test_a_set_timeout_may_shorten_a_deadline():
    row = set_timeout(running(timeout=HOUR), NOON, timeout=MINUTE)
    assert (row.expires_at, row.timeout) == (NOON + MINUTE, MINUTE)


def test_a_timeout_set_while_paused_counts_from_the_resume():
    row = set_timeout(paused(), NOON, timeout=5 * MINUTE)
    assert row.expires_at is None
    assert resume(row, NOON + DAY).expires_at == NOON + DAY + 5 * MINUTE


def test_paused_time_does_not_count_towards_the_deadline():
    row = paused(timeout=HOUR, after=20 * MINUTE)
    assert (row.expires_at, row.remaining) == (None, 40 * MINUTE)
    resumed = resume(row, NOON + 7 * DAY)
    assert (resumed.expires_at, resumed.remaining) == (NOON + 7 * DAY + 40 * MINUTE, None)


def test_paused_time_does_not_count_towards_the_idle_timeout():
    resumed = resume(paused(), NOON + DAY)
    assert resumed.last_activity_at == NOON + DAY


def test_a_paused_sandbox_is_kept_for_30_days_by_the_wall_clock():
    assert paused(after=20 * MINUTE).retain_until == NOON + 20 * MINUTE + 30 * DAY


def test_how_long_a_paused_sandbox_is_kept_is_a_setting():
    row = pause(running(), NOON, rules=Rules(retention=DAY))
    assert row.retain_until == NOON + DAY


def test_a_resumed_sandbox_is_no_longer_about_to_be_removed():
    assert resume(paused(), NOON + DAY).retain_until is None


def test_a_sandbox_wanted_back_with_no_time_left_has_all_of_it_again():
    row = pause(running(timeout=HOUR), NOON + 2 * HOUR)
    assert row.remaining == NOTHING
    assert resume(want_back(row, NOON), NOON + DAY).expires_at == NOON + DAY + HOUR


def test_a_pause_for_the_providers_maximum_gives_no_time_to_a_sandbox_that_has_none_left():
    expired = NOON + 2 * HOUR
    row = refresh(pause(running(timeout=HOUR), expired), expired)
    assert row.expires_at == expired


def test_a_failed_resume_keeps_the_time_that_was_left_and_never_turns_into_never_expires():
    before = paused(timeout=HOUR, after=20 * MINUTE)
    resuming = replace(want_back(before, NOON + DAY), state=State.RESUMING)
    assert resuming.retain_until == before.retain_until
    after = pause(resuming, NOON + DAY + HOUR)
    assert after == replace(before, target=Target.RUNNING)


def test_a_failed_resume_does_not_begin_the_retention_anew():
    row = paused()
    for day in range(1, 20):
        row = pause(replace(row, state=State.RESUMING), NOON + day * DAY)
    assert row.retain_until == paused().retain_until


def test_a_sandbox_is_not_removed_under_the_hands_of_who_resumes_it():
    row = paused()
    assert row.retain_until
    last_minute = row.retain_until - MINUTE
    assert want_back(row, last_minute).retain_until == last_minute + HOUR


def test_recording_a_pause_twice_changes_nothing():
    assert pause(paused(), NOON + DAY) == paused()


def test_a_pause_that_did_not_happen_leaves_the_deadlines_as_they_were():
    row = running()
    assert fail_pause(replace(row, state=State.PAUSING)) == row


def test_a_queued_sandbox_has_a_deadline_of_its_own():
    row = queue(wanted(), NOON, wait=5 * MINUTE)
    assert (row.queue_expires_at, row.expires_at) == (NOON + 5 * MINUTE, None)


def test_a_sandbox_that_goes_back_to_the_queue_does_not_wait_longer_for_it():
    row = requeue(starting())
    assert row.state is State.QUEUED
    assert row.queue_expires_at == NOON + 5 * MINUTE
    assert row.expires_at is None


def test_activity_that_is_reported_late_does_not_take_back_what_is_newer():
    row = touch(touch(running(), NOON + MINUTE), NOON + SECOND)
    assert row.last_activity_at == NOON + MINUTE


def test_activity_does_not_move_the_deadline():
    assert touch(running(), NOON + MINUTE).expires_at == running().expires_at


def test_a_shorter_lease_to_stay_awake_does_not_end_a_longer_one():
    row = keep_awake(keep_awake(running(), NOON + HOUR), NOON + MINUTE)
    assert row.awake_until == NOON + HOUR


def test_the_providers_own_timeout_is_a_dead_mans_switch_that_is_extended():
    rules = Rules(provider_timeout=10 * MINUTE)
    row = start(starting(), NOON, rules=rules)
    assert row.provider_until == NOON + 10 * MINUTE
    assert extend_provider(row, NOON + HOUR, rules=rules).provider_until == NOON + 70 * MINUTE


def test_the_providers_timeout_never_reaches_beyond_its_maximum():
    rules = Rules(provider_timeout=10 * MINUTE, longest_run=HOUR)
    row = start(starting(), NOON, rules=rules)
    assert extend_provider(row, NOON + 55 * MINUTE, rules=rules).provider_until == NOON + HOUR


def test_the_continuous_run_counts_from_the_providers_start_and_not_from_when_we_heard_of_it():
    row = start(starting(), NOON + 5 * MINUTE, since=NOON)
    assert row.started_at == NOON


def test_a_new_run_for_the_providers_sake_is_not_activity():
    row = touch(running(), NOON + MINUTE)
    renewed = refresh(pause(row, NOON + 50 * MINUTE), NOON + 50 * MINUTE)
    assert renewed.started_at == NOON + 50 * MINUTE
    assert renewed.last_activity_at == NOON + MINUTE
    assert renewed.expires_at == row.expires_at


def test_what_has_happened_does_not_undo_what_somebody_wants_in_the_meantime():
    doomed = replace(paused(), target=Target.GONE, state=State.RESUMING)
    assert resume(doomed, NOON + DAY).target is Target.GONE
    assert pause(doomed, NOON + DAY).target is Target.GONE
    assert fail_pause(replace(running(), target=Target.GONE)).target is Target.GONE
