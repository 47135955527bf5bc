from dataclasses import replace
from datetime import timedelta, timezone

import pytest

from sandbox_server.domain.deadlines import (
    Rules,
    connect,
    keep_awake,
    queue,
    set_timeout,
    start,
)
from sandbox_server.domain.due import Due, Why, next_due
from sandbox_server.domain.explanations import (
    explain,
    explain_change,
    format_duration,
    format_instant,
)
from sandbox_server.domain.state import OnTimeout, State, Target

from .lives import DAY, HOUR, MINUTE, NOON, SECOND, paused, running, starting, wanted

UNGUARDED = Rules(provider_timeout=365 * DAY)


def why(row, *, rules=UNGUARDED) -> str:
    due = next_due(replace(row, provider_until=None), NOON, rules=rules)
    assert due is not None
    return explain(due, row, rules=rules)


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (0 * SECOND, "0 s"),
        (45 * SECOND, "45 s"),
        (MINUTE, "1 min"),
        (90 * MINUTE, "1 h 30 min"),
        (HOUR + SECOND, "1 h 1 s"),
        (DAY + HOUR + MINUTE, "1 day 1 h"),
        (30 * DAY, "30 days"),
        (59.7 * SECOND, "1 min"),
    ],
)
def test_a_duration_is_said_in_its_two_largest_units(duration, words):
    assert format_duration(duration) == words


def test_an_instant_is_told_in_utc_wherever_it_was_taken():
    elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
    assert format_instant(elsewhere) == "2026-11-18 12:00:00 UTC"


def test_an_idle_pause_is_explained_by_its_arithmetic():
    assert why(running(idle_timeout=10 * MINUTE)) == (
        "Idle: last activity 2026-11-18 12:00:00 UTC + 10 min of idle timeout "
        "= 2026-11-18 12:10:00 UTC."
    )


def test_an_idle_pause_after_a_lease_says_so():
    row = keep_awake(running(idle_timeout=10 * MINUTE), NOON + 40 * MINUTE)
    assert why(row) == (
        "Idle: last activity 2026-11-18 12:00:00 UTC + 10 min of idle timeout; "
        "kept awake until 2026-11-18 12:40:00 UTC."
    )


def test_an_expiry_is_explained_by_its_arithmetic():
    assert why(running(timeout=HOUR)) == (
        "Timeout expired: started 2026-11-18 12:00:00 UTC + 1 h of timeout "
        "= 2026-11-18 13:00:00 UTC; paused."
    )
    given_more = connect(running(timeout=HOUR), NOON + MINUTE, timeout=HOUR)
    assert why(given_more) == ("Timeout expired at 2026-11-18 13:01:00 UTC (timeout 1 h); paused.")
    assert why(running(timeout=HOUR, on_timeout=OnTimeout.DELETE)).endswith("; deleted.")


def test_a_start_that_never_finished_is_explained():
    row = replace(starting(timeout=HOUR), expires_at=NOON - SECOND)
    assert why(row) == "Start timeout: not started by 2026-11-18 11:59:59 UTC, after 1 h."


def test_the_end_of_a_retention_is_explained():
    row = replace(paused(after=MINUTE), target=Target.PAUSED)
    assert why(row) == ("Retention expired: not resumed by 2026-12-18 12:01:00 UTC.")


def test_the_end_of_a_wait_in_the_queue_is_explained():
    assert why(queue(wanted(), NOON, wait=MINUTE)) == (
        "Queue timeout: no slot was free by 2026-11-18 12:01:00 UTC."
    )


def test_a_pause_for_the_providers_maximum_is_explained():
    rules = replace(UNGUARDED, longest_run=24 * HOUR)
    row = start(wanted(timeout=3 * DAY), NOON, rules=rules)
    assert why(row, rules=rules) == (
        "Running since 2026-11-18 12:00:00 UTC; the provider ends a run after "
        "1 day, and a pause starts a new one."
    )


def test_what_is_not_yet_as_wanted_is_explained():
    row = replace(running(), state=State.PAUSING, target=Target.GONE)
    assert why(row) == "Continued: the state was pausing, the target gone."


@pytest.mark.parametrize("each", Why)
@pytest.mark.parametrize("row", [running(), paused(), starting(), wanted()])
def test_every_reason_has_words_whatever_the_row_lacks(each, row):
    assert explain(Due(NOON, each, Target.GONE), row).endswith(".")


def test_more_time_is_told_with_what_it_was_before():
    row = running(timeout=HOUR)
    assert explain_change(row, connect(row, NOON, timeout=90 * MINUTE)) == (
        "Expires at 2026-11-18 13:30:00 UTC instead of 2026-11-18 13:00:00 UTC, 30 min more."
    )


def test_less_time_is_told_too():
    row = running(timeout=HOUR)
    text = explain_change(row, set_timeout(row, NOON, timeout=MINUTE))
    assert text is not None
    assert text.endswith("59 min less.")


def test_more_time_for_a_paused_sandbox_is_told_as_what_is_left():
    row = paused(timeout=HOUR, after=20 * MINUTE)
    assert explain_change(row, connect(row, NOON, timeout=50 * MINUTE)) == (
        "50 min left after the resume, 10 min more."
    )


def test_a_change_that_changes_nothing_is_not_told():
    for row in (running(), paused()):
        assert explain_change(row, connect(row, NOON, timeout=SECOND)) is None
