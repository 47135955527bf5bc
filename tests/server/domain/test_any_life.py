"""What holds whatever happens to a sandbox, in whatever order."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_server.domain.deadlines import (
    NOTHING,
    Deadlines,
    Rules,
    admit,
    connect,
    extend_provider,
    fail_pause,
    keep_awake,
    pause,
    refresh,
    requeue,
    resume,
    start,
    touch,
    want_back,
)
from sandbox_server.domain.due import Why, next_due
from sandbox_server.domain.state import ENDED, OnTimeout, State, Target
from sandbox_server.domain.steps import Act, ProviderState, next_step

from .lives import DAY, HOUR, MINUTE, NOON, wanted

Change = Callable[[Deadlines, datetime], Deadlines]

LONGEST = 2 * DAY
RULES = Rules(longest_run=HOUR, provider_timeout=10 * MINUTE)
TIMEOUTS = st.timedeltas(min_value=MINUTE, max_value=LONGEST)
AT_REST = frozenset({State.PAUSED, State.RESUMING})

# The same examples on every machine, however slow it is.
same_examples = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)


def in_state(state: State) -> Change:
    return lambda row, _: replace(row, state=state)


def connecting(timeout: timedelta) -> Change:
    return lambda row, now: connect(row, now, timeout=timeout)


def keeping_awake(timeout: timedelta) -> Change:
    return lambda row, now: keep_awake(row, now + timeout)


# What can happen to a sandbox in each state besides being connected to.
HAPPENS: dict[State, list[Change]] = {
    State.QUEUED: [admit],
    State.STARTING: [start, lambda row, _: requeue(row), pause],
    State.RUNNING: [touch, extend_provider, pause, in_state(State.PAUSING)],
    State.PAUSING: [pause, lambda row, _: fail_pause(row)],
    State.PAUSED: [resume, want_back, pause, in_state(State.RESUMING)],
    State.RESUMING: [resume, refresh, pause],
}


def time_left(row: Deadlines, now: datetime) -> timedelta:
    if row.state in AT_REST:
        assert row.remaining is not None
        return row.remaining
    if row.expires_at is None:
        assert row.state is State.QUEUED
        return row.timeout
    return max(row.expires_at - now, NOTHING)


def is_bounded(row: Deadlines) -> bool:
    if row.state is State.QUEUED:
        return True
    if row.state in AT_REST:
        return row.retain_until is not None and row.expires_at is None
    return row.expires_at is not None


@same_examples
@given(data=st.data())
def test_deadlines__no_event_shortens_one_or_makes_it_infinite(data):
    row, now = wanted(timeout=data.draw(TIMEOUTS)), NOON
    for _ in range(data.draw(st.integers(1, 25))):
        passed = data.draw(st.timedeltas(min_value=NOTHING, max_value=HOUR))
        runs = row.expires_at is not None
        before = max(time_left(row, now) - (passed if runs else NOTHING), NOTHING)
        now += passed
        by_others = TIMEOUTS.map(connecting) | TIMEOUTS.map(keeping_awake)
        row = data.draw(by_others | st.sampled_from(HAPPENS[row.state]))(row, now)
        assert before <= time_left(row, now) <= LONGEST
        assert is_bounded(row)


def act(row: Deadlines, now: datetime, truth: ProviderState) -> tuple[Deadlines, ProviderState]:
    """Take the next step at a provider that does what it is asked."""
    step = next_step(row.state, row.target, truth)
    row = replace(row, target=step.target)
    match step.act, step.to:
        case Act.ADMIT, _:
            return admit(row, now), truth
        case Act.START, _:
            return start(row, now, rules=RULES), ProviderState.RUNNING
        case Act.PAUSE, _:
            return pause(row, now, rules=RULES), ProviderState.PAUSED
        case Act.RESUME, _:
            return resume(row, now, rules=RULES), ProviderState.RUNNING
        case Act.KILL, _:
            return replace(row, state=step.to), ProviderState.ABSENT
        case _, to:
            return replace(row, state=to), truth


def attend(row: Deadlines, now: datetime, truth: ProviderState) -> tuple[Deadlines, ProviderState]:
    """Do what a job does when it looks at a sandbox: carry out what is due."""
    due = next_due(row, now, rules=RULES)
    if due is None or due.at > now:
        return row, truth
    match due.why:
        case Why.PROVIDER_TIMEOUT:
            return extend_provider(row, now, rules=RULES), truth
        case Why.LONGEST_RUN:
            return refresh(pause(row, now, rules=RULES), now, rules=RULES), truth
        case _:
            return act(replace(row, target=due.target), now, truth)


@same_examples
@given(
    timeout=TIMEOUTS,
    idle_timeout=st.none() | TIMEOUTS,
    on_timeout=st.sampled_from(OnTimeout),
    lateness=st.timedeltas(min_value=NOTHING, max_value=DAY),
)
def test_deadlines__a_forgotten_sandbox_ends(timeout, idle_timeout, on_timeout, lateness):
    row = wanted(timeout=timeout, idle_timeout=idle_timeout, on_timeout=on_timeout)
    row, truth, now = admit(row, NOON), ProviderState.ABSENT, NOON
    for _ in range(1000):
        due = next_due(row, now, rules=RULES)
        if due is None:
            break
        now = max(now, due.at + lateness)
        row, truth = attend(row, now, truth)
    assert row.state in ENDED
    assert truth is ProviderState.ABSENT
    assert now <= NOON + 40 * DAY + 10 * lateness


@same_examples
@given(timeout=TIMEOUTS, idle_timeout=st.none() | TIMEOUTS)
def test_provider_timeout__is_always_extended_in_time(timeout, idle_timeout):
    row = start(wanted(timeout=timeout, idle_timeout=idle_timeout), NOON, rules=RULES)
    truth, now = ProviderState.RUNNING, NOON
    while row.state is State.RUNNING:
        due = next_due(row, now, rules=RULES)
        assert due is not None
        assert row.provider_until is not None
        assert due.at < row.provider_until
        now = max(now, due.at)
        row, truth = attend(row, now, truth)
    assert row.target is Target.PAUSED
