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


def test_queue__waiting_does_not_count_towards_the_timeout():
    started = start(starting(timeout=HOUR), NOON + 10 * MINUTE)
    assert started.expires_at == NOON + 10 * MINUTE + HOUR
    assert started.queue_expires_at is None


def test_start__has_a_deadline():
    assert starting(timeout=HOUR).expires_at == NOON + HOUR


def test_connect__never_shortens_the_timeout():
    row = running(timeout=HOUR)
    assert connect(row, NOON, timeout=MINUTE).expires_at == NOON + HOUR
    assert connect(row, NOON, timeout=2 * HOUR).expires_at == NOON + 2 * HOUR


def test_connect__without_a_timeout_restarts_the_sandboxs_own():
    later = NOON + 30 * MINUTE
    assert connect(running(timeout=HOUR), later).expires_at == later + HOUR


def test_connect__never_shortens_the_remaining_time_of_a_paused_sandbox():
    row = paused(timeout=HOUR, after=20 * MINUTE)
    assert connect(row, NOON, timeout=MINUTE).remaining == 40 * MINUTE
    assert connect(row, NOON, timeout=50 * MINUTE).remaining == 50 * MINUTE


def test_timeout__one_set_during_the_start_applies_when_it_runs():
    connected = connect(starting(timeout=HOUR), NOON, timeout=3 * HOUR)
    assert start(connected, NOON + MINUTE).expires_at == NOON + MINUTE + 3 * HOUR


def test_timeout__one_set_during_the_start_survives_a_return_to_the_queue():
    connected = requeue(connect(starting(timeout=HOUR), NOON, timeout=3 * HOUR))
    assert start(connected, NOON + DAY).expires_at == NOON + DAY + 3 * HOUR


def test_set_timeout__may_shorten_the_timeout():
    row = set_timeout(running(timeout=HOUR), NOON, timeout=MINUTE)
    assert (row.expires_at, row.timeout) == (NOON + MINUTE, MINUTE)


def test_set_timeout__while_paused_counts_from_the_resume():
    row = set_timeout(paused(), NOON, timeout=5 * MINUTE)
    assert row.expires_at is None
    assert resume(row, NOON + DAY).expires_at == NOON + DAY + 5 * MINUTE


def test_pause__its_time_does_not_count_towards_the_timeout():
    row = paused(timeout=HOUR, after=20 * MINUTE)
    assert (row.expires_at, row.remaining) == (None, 40 * MINUTE)
    resumed = resume(row, NOON + 7 * DAY)
    assert (resumed.expires_at, resumed.remaining) == (NOON + 7 * DAY + 40 * MINUTE, None)


def test_pause__its_time_does_not_count_towards_the_idle_timeout():
    resumed = resume(paused(), NOON + DAY)
    assert resumed.last_activity_at == NOON + DAY


def test_retention__is_30_days_of_wall_clock_time():
    assert paused(after=20 * MINUTE).retain_until == NOON + 20 * MINUTE + 30 * DAY


def test_retention__is_a_setting():
    row = pause(running(), NOON, rules=Rules(retention=DAY))
    assert row.retain_until == NOON + DAY


def test_retention__a_resume_ends_it():
    assert resume(paused(), NOON + DAY).retain_until is None


def test_resume__without_remaining_time_restores_the_whole_timeout():
    row = pause(running(timeout=HOUR), NOON + 2 * HOUR)
    assert row.remaining == NOTHING
    assert resume(want_back(row, NOON), NOON + DAY).expires_at == NOON + DAY + HOUR


def test_maximum_run__a_refresh_gives_no_time_to_an_expired_sandbox():
    expired = NOON + 2 * HOUR
    row = refresh(pause(running(timeout=HOUR), expired), expired)
    assert row.expires_at == expired


def test_resume__a_failed_one_keeps_the_remaining_time():
    before = paused(timeout=HOUR, after=20 * MINUTE)
    resuming = replace(want_back(before, NOON + DAY), state=State.RESUMING)
    assert resuming.retain_until == before.retain_until
    after = pause(resuming, NOON + DAY + HOUR)
    assert after == replace(before, target=Target.RUNNING)


def test_resume__a_failed_one_does_not_restart_the_retention():
    row = paused()
    for day in range(1, 20):
        row = pause(replace(row, state=State.RESUMING), NOON + day * DAY)
    assert row.retain_until == paused().retain_until


def test_resume__the_retention_does_not_expire_meanwhile():
    row = paused()
    assert row.retain_until
    last_minute = row.retain_until - MINUTE
    assert want_back(row, last_minute).retain_until == last_minute + HOUR


def test_pause__recording_it_twice_changes_nothing():
    assert pause(paused(), NOON + DAY) == paused()


def test_pause__a_failed_one_leaves_the_deadlines_unchanged():
    row = running()
    assert fail_pause(replace(row, state=State.PAUSING)) == row


def test_queue__has_its_own_deadline():
    row = queue(wanted(), NOON, wait=5 * MINUTE)
    assert (row.queue_expires_at, row.expires_at) == (NOON + 5 * MINUTE, None)


def test_queue__a_return_keeps_the_queue_deadline():
    row = requeue(starting())
    assert row.state is State.QUEUED
    assert row.queue_expires_at == NOON + 5 * MINUTE
    assert row.expires_at is None


def test_activity__a_late_report_does_not_replace_a_newer_one():
    row = touch(touch(running(), NOON + MINUTE), NOON + SECOND)
    assert row.last_activity_at == NOON + MINUTE


def test_activity__does_not_move_the_timeout():
    assert touch(running(), NOON + MINUTE).expires_at == running().expires_at


def test_keepalive__a_shorter_one_does_not_end_a_longer_one():
    row = keep_awake(keep_awake(running(), NOON + HOUR), NOON + MINUTE)
    assert row.awake_until == NOON + HOUR


def test_provider_timeout__is_extended_by_the_server():
    rules = Rules(provider_timeout=10 * MINUTE)
    row = start(starting(), NOON, rules=rules)
    assert row.provider_until == NOON + 10 * MINUTE
    assert extend_provider(row, NOON + HOUR, rules=rules).provider_until == NOON + 70 * MINUTE


def test_provider_timeout__never_exceeds_the_maximum_run():
    rules = Rules(provider_timeout=10 * MINUTE, longest_run=HOUR)
    row = start(starting(), NOON, rules=rules)
    assert extend_provider(row, NOON + 55 * MINUTE, rules=rules).provider_until == NOON + HOUR


def test_maximum_run__counts_from_the_providers_start():
    row = start(starting(), NOON + 5 * MINUTE, since=NOON)
    assert row.started_at == NOON


def test_maximum_run__a_refresh_is_no_activity():
    row = touch(running(), NOON + MINUTE)
    renewed = refresh(pause(row, NOON + 50 * MINUTE), NOON + 50 * MINUTE)
    assert renewed.started_at == NOON + 50 * MINUTE
    assert renewed.last_activity_at == NOON + MINUTE
    assert renewed.expires_at == row.expires_at


def test_outcome__does_not_undo_a_target_set_meanwhile():
    doomed = replace(paused(), target=Target.GONE, state=State.RESUMING)
    assert resume(doomed, NOON + DAY).target is Target.GONE
    assert pause(doomed, NOON + DAY).target is Target.GONE
    assert fail_pause(replace(running(), target=Target.GONE)).target is Target.GONE
