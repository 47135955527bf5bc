"""When a sandbox is due, and why.

Timers are lazy: activity writes `last_activity_at` and no job. The job that was scheduled for the earlier instant finds
here that nothing is due yet, and postpones itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandbox_server.domain.deadlines import DEFAULT_RULES, Deadlines, Rules
from sandbox_server.domain.state import ENDED, OnTimeout, State, Target, serves


class Why(StrEnum):
    UNSETTLED = "unsettled"
    """The sandbox has not reached its target."""
    QUEUE_DEADLINE = "queue-deadline"
    EXPIRY = "expiry"
    IDLE = "idle"
    RETENTION = "retention"
    PROVIDER_TIMEOUT = "provider-timeout"
    """The provider's own timeout is to be extended."""
    LONGEST_RUN = "longest-run"
    """The sandbox is to be paused and resumed before the provider's longest run."""


@dataclass(frozen=True)
class Due:
    at: datetime
    why: Why
    target: Target
    """The target from then on."""


def next_due(row: Deadlines, now: datetime, *, rules: Rules = DEFAULT_RULES) -> Due | None:
    """Find the earliest deadline; at or before `now` it is due."""
    return min(_all_due(row, now, rules), key=lambda due: due.at, default=None)


def idle_pause_at(row: Deadlines) -> datetime | None:
    """When the sandbox is paused if there is no further activity."""
    if row.state is not State.RUNNING or row.idle_timeout is None:
        return None
    return max(_instants(_quiet_since(row, row.idle_timeout), row.awake_until), default=None)


def refresh_at(row: Deadlines, *, rules: Rules = DEFAULT_RULES) -> datetime | None:
    """When to pause and resume: the first quiet moment near the longest run, or the last possible one."""
    if row.state is not State.RUNNING or row.started_at is None or rules.longest_run is None:
        return None
    # At least half a run, so that a short maximum leaves time between two pauses.
    last = row.started_at + max(rules.longest_run - rules.pause_takes, rules.longest_run / 2)
    first = row.started_at + max(rules.longest_run - rules.quiet_within, rules.longest_run / 2)
    quiet = max(first, *_instants(_quiet_since(row, rules.quiet_after), row.awake_until))
    return min(quiet, last)


def extend_provider_at(row: Deadlines, *, rules: Rules = DEFAULT_RULES) -> datetime | None:
    """When half of the provider's timeout has elapsed; at its maximum there is nothing to extend."""
    if row.state is not State.RUNNING or row.provider_until is None:
        return None
    if row.started_at is not None and rules.longest_run is not None:
        maximum = row.started_at + rules.longest_run
        if row.provider_until >= maximum:
            return None
    return row.provider_until - rules.provider_timeout / 2


def waits_for_slot(row: Deadlines) -> bool:
    """Whether the sandbox is queued: to start, or to resume."""
    return row.target is Target.RUNNING and row.state in {State.QUEUED, State.PAUSED}


def _all_due(row: Deadlines, now: datetime, rules: Rules) -> Iterator[Due]:
    # Of two deadlines at one instant the first counts: deletions come before pauses.
    if row.state in ENDED:
        return
    if not serves(row.state, row.target) and _can_go_on(row):
        yield Due(now, Why.UNSETTLED, row.target)
    if row.target is Target.GONE:
        return
    if row.queue_expires_at is not None and waits_for_slot(row):
        ends = row.state is State.QUEUED
        target = Target.GONE if ends else Target.PAUSED
        yield Due(row.queue_expires_at, Why.QUEUE_DEADLINE, target)
    if row.retain_until is not None and row.state in {State.PAUSED, State.RESUMING}:
        yield Due(row.retain_until, Why.RETENTION, Target.GONE)
    yield from _due_by_expiry(row, rules)
    if row.target is Target.RUNNING:
        yield from _due_while_running(row, rules)


def _can_go_on(row: Deadlines) -> bool:
    # A queued sandbox is admitted by the job of its backend.
    return not waits_for_slot(row)


def _due_by_expiry(row: Deadlines, rules: Rules) -> Iterator[Due]:
    if row.expires_at is None:
        return
    if row.state is State.STARTING:
        yield Due(row.expires_at, Why.EXPIRY, Target.GONE)
    # A pause requested in time prevents the expiry, however long the pause takes.
    elif row.target is Target.RUNNING:
        ends = row.on_timeout is OnTimeout.DELETE or not rules.can_pause
        yield Due(row.expires_at, Why.EXPIRY, Target.GONE if ends else Target.PAUSED)


def _due_while_running(row: Deadlines, rules: Rules) -> Iterator[Due]:
    if rules.can_pause and (at := idle_pause_at(row)) is not None:
        yield Due(at, Why.IDLE, Target.PAUSED)
    if (at := refresh_at(row, rules=rules)) is not None:
        yield Due(at, Why.LONGEST_RUN, Target.RUNNING)
    if (at := extend_provider_at(row, rules=rules)) is not None:
        yield Due(at, Why.PROVIDER_TIMEOUT, Target.RUNNING)


def _quiet_since(row: Deadlines, long: timedelta) -> datetime | None:
    return None if row.last_activity_at is None else row.last_activity_at + long


def _instants(*instants: datetime | None) -> list[datetime]:
    return [instant for instant in instants if instant is not None]
