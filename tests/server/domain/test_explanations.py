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
def test_duration__is_formatted_in_its_two_largest_units(duration, words):
    assert format_duration(duration) == words


def test_instant__is_formatted_in_utc():
    elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
    assert format_instant(elsewhere) == "2026-11-18 12:00:00 UTC"


def test_explanation__an_idle_pause_has_its_arithmetic():
    assert why(running(idle_timeout=10 * MINUTE)) == (
        "Idle: last activity 2026-11-18 12:00:00 UTC + 10 min of idle timeout "
        "= 2026-11-18 12:10:00 UTC."
    )


def test_explanation__an_idle_pause_after_a_keepalive_says_so():
    row = keep_awake(running(idle_timeout=10 * MINUTE), NOON + 40 * MINUTE)
    assert why(row) == (
        "Idle: last activity 2026-11-18 12:00:00 UTC + 10 min of idle timeout; "
        "kept awake until 2026-11-18 12:40:00 UTC."
    )


def test_explanation__an_expiry_has_its_arithmetic():
    assert why(running(timeout=HOUR)) == (
        "Timeout expired: started 2026-11-18 12:00:00 UTC + 1 h of timeout "
        "= 2026-11-18 13:00:00 UTC; paused."
    )
    given_more = connect(running(timeout=HOUR), NOON + MINUTE, timeout=HOUR)
    assert why(given_more) == ("Timeout expired at 2026-11-18 13:01:00 UTC (timeout 1 h); paused.")
    assert why(running(timeout=HOUR, on_timeout=OnTimeout.DELETE)).endswith("; deleted.")


def test_explanation__of_a_start_timeout():
    row = replace(starting(timeout=HOUR), expires_at=NOON - SECOND)
    assert why(row) == "Start timeout: not started by 2026-11-18 11:59:59 UTC, after 1 h."


def test_explanation__of_an_expired_retention():
    row = replace(paused(after=MINUTE), target=Target.PAUSED)
    assert why(row) == ("Retention expired: not resumed by 2026-12-18 12:01:00 UTC.")


def test_explanation__of_a_queue_timeout():
    assert why(queue(wanted(), NOON, wait=MINUTE)) == (
        "Queue timeout: no slot was free by 2026-11-18 12:01:00 UTC."
    )


def test_explanation__of_a_refresh_for_the_maximum_run():
    rules = replace(UNGUARDED, longest_run=24 * HOUR)
    row = start(wanted(timeout=3 * DAY), NOON, rules=rules)
    assert why(row, rules=rules) == (
        "Running since 2026-11-18 12:00:00 UTC; the provider ends a run after "
        "1 day, and a pause starts a new one."
    )


def test_explanation__of_an_unfinished_transition():
    row = replace(running(), state=State.PAUSING, target=Target.GONE)
    assert why(row) == "Continued: the state was pausing, the target gone."


@pytest.mark.parametrize("each", Why)
@pytest.mark.parametrize("row", [running(), paused(), starting(), wanted()])
def test_explanation__every_due_reason_has_one(each, row):
    assert explain(Due(NOON, each, Target.GONE), row).endswith(".")


def test_explanation__more_time_names_the_former_deadline():
    row = running(timeout=HOUR)
    assert explain_change(row, connect(row, NOON, timeout=90 * MINUTE)) == (
        "Expires at 2026-11-18 13:30:00 UTC instead of 2026-11-18 13:00:00 UTC, 30 min more."
    )


def test_explanation__less_time_names_the_former_deadline():
    row = running(timeout=HOUR)
    text = explain_change(row, set_timeout(row, NOON, timeout=MINUTE))
    assert text is not None
    assert text.endswith("59 min less.")


def test_explanation__more_time_while_paused_names_the_remaining_time():
    row = paused(timeout=HOUR, after=20 * MINUTE)
    assert explain_change(row, connect(row, NOON, timeout=50 * MINUTE)) == (
        "50 min left after the resume, 10 min more."
    )


def test_explanation__is_omitted_without_a_change():
    for row in (running(), paused()):
        assert explain_change(row, connect(row, NOON, timeout=SECOND)) is None
