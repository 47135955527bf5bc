"""When a job has to look at a sandbox again, and why.

Timers are lazy: activity writes `last_activity_at` and no job. The job that was set for the old instant finds here that
nothing is due yet, and moves itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandbox_server.domain.deadlines import DEFAULT_RULES, Deadlines, Rules
from sandbox_server.domain.state import ENDED, OnTimeout, State, Target, serves


class Why(StrEnum):
    UNSETTLED = "unsettled"
    """It is not yet what is wanted."""
    QUEUE_DEADLINE = "queue-deadline"
    EXPIRY = "expiry"
    IDLE = "idle"
    RETENTION = "retention"
    PROVIDER_TIMEOUT = "provider-timeout"
    """The provider's own timeout has to be extended."""
    LONGEST_RUN = "longest-run"
    """It has to be paused and resumed before the provider's maximum."""


@dataclass(frozen=True)
class Due:
    at: datetime
    why: Why
    target: Target
    """What is wanted of the sandbox from then on."""


def next_due(row: Deadlines, now: datetime, *, rules: Rules = DEFAULT_RULES) -> Due | None:
    """Find the earliest instant at which something has to be done; at or before `now` it is due."""
    return min(_all_due(row, now, rules), key=lambda due: due.at, default=None)


def idle_pause_at(row: Deadlines) -> datetime | None:
    """Tell when it will be paused if nothing happens in it any more."""
    if row.state is not State.RUNNING or row.idle_timeout is None:
        return None
    return max(_instants(_quiet_since(row, row.idle_timeout), row.awake_until), default=None)


def refresh_at(row: Deadlines, *, rules: Rules = DEFAULT_RULES) -> datetime | None:
    """Tell when to pause and resume it: the first quiet moment near the maximum, or the last one."""
    if row.state is not State.RUNNING or row.started_at is None or rules.longest_run is None:
        return None
    # Half a run at the least, lest a short maximum leaves no time between two pauses.
    last = row.started_at + max(rules.longest_run - rules.pause_takes, rules.longest_run / 2)
    first = row.started_at + max(rules.longest_run - rules.quiet_within, rules.longest_run / 2)
    quiet = max(first, *_instants(_quiet_since(row, rules.quiet_after), row.awake_until))
    return min(quiet, last)


def extend_provider_at(row: Deadlines, *, rules: Rules = DEFAULT_RULES) -> datetime | None:
    """Tell when the provider's timeout is half over; at its maximum there is nothing to extend."""
    if row.state is not State.RUNNING or row.provider_until is None:
        return None
    if row.started_at is not None and rules.longest_run is not None:
        maximum = row.started_at + rules.longest_run
        if row.provider_until >= maximum:
            return None
    return row.provider_until - rules.provider_timeout / 2


def waits_for_slot(row: Deadlines) -> bool:
    """Tell whether it stands in the queue: to start, or to resume."""
    return row.target is Target.RUNNING and row.state in {State.QUEUED, State.PAUSED}


def _all_due(row: Deadlines, now: datetime, rules: Rules) -> Iterator[Due]:
    # Of two at one instant the first counts: what is final comes before what is not.
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
    yield from _due_by_expiry(row)
    if row.target is Target.RUNNING:
        yield from _due_while_running(row, rules)


def _can_go_on(row: Deadlines) -> bool:
    # What waits in the queue is woken by the place that gets free, not by a job.
    return not waits_for_slot(row)


def _due_by_expiry(row: Deadlines) -> Iterator[Due]:
    if row.expires_at is None:
        return
    if row.state is State.STARTING:
        yield Due(row.expires_at, Why.EXPIRY, Target.GONE)
    # A pause that was asked for in time saves it, however long the pause takes.
    elif row.target is Target.RUNNING:
        ends = row.on_timeout is OnTimeout.DELETE
        yield Due(row.expires_at, Why.EXPIRY, Target.GONE if ends else Target.PAUSED)


def _due_while_running(row: Deadlines, rules: Rules) -> Iterator[Due]:
    if (at := idle_pause_at(row)) is not None:
        yield Due(at, Why.IDLE, Target.PAUSED)
    if (at := refresh_at(row, rules=rules)) is not None:
        yield Due(at, Why.LONGEST_RUN, Target.RUNNING)
    if (at := extend_provider_at(row, rules=rules)) is not None:
        yield Due(at, Why.PROVIDER_TIMEOUT, Target.RUNNING)


def _quiet_since(row: Deadlines, long: timedelta) -> datetime | None:
    return None if row.last_activity_at is None else row.last_activity_at + long


def _instants(*instants: datetime | None) -> list[datetime]:
    return [instant for instant in instants if instant is not None]
