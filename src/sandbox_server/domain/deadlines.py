"""How long a sandbox lives: what each thing that happens to it does to its deadlines.

    in the queue     until queue_expires_at
    with a place     until expires_at           its time runs
    paused           until retain_until         its time stands still in `remaining`

One of the last two is always set, so nothing lives for ever. Whoever only uses a sandbox never takes time from it; only
`set_timeout` can, because it is asked to. Each function returns the deadlines as they are from `now` on. What has happened
leaves `target` alone, which somebody else may have changed in the meantime.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sandbox_server.domain.state import OnTimeout, State, Target

NOTHING = timedelta(0)
_NOT_BEGUN = frozenset({State.QUEUED, State.STARTING})


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """What of a sandbox's row decides when something is due."""

    state: State
    target: Target
    timeout: timedelta
    on_timeout: OnTimeout = OnTimeout.PAUSE
    idle_timeout: timedelta | None = None
    queue_expires_at: datetime | None = None
    started_at: datetime | None = None  # since when it has been running without a pause
    last_activity_at: datetime | None = None
    awake_until: datetime | None = None
    expires_at: datetime | None = None
    remaining: timedelta | None = None
    retain_until: datetime | None = None
    provider_until: datetime | None = None  # when the provider would pause it by itself


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What holds for all sandboxes of a server, or of one backend."""

    retention: timedelta = timedelta(days=30)
    resume_within: timedelta = timedelta(hours=1)
    """How long a paused sandbox is kept at the least after somebody wanted it back."""
    provider_timeout: timedelta = timedelta(minutes=15)
    """After how long the provider pauses what no server looked after."""
    longest_run: timedelta | None = None
    """How long the provider lets a sandbox run without a pause."""
    quiet_within: timedelta = timedelta(minutes=10)
    """How long before that a quiet moment for a pause is looked for."""
    quiet_after: timedelta = timedelta(seconds=30)
    """How long nothing must have happened for a moment to be quiet."""
    pause_takes: timedelta = timedelta(minutes=2)
    """How long before that the pause comes, quiet or not."""


DEFAULT_RULES = Rules()


def queue(row: Deadlines, now: datetime, *, wait: timedelta | None) -> Deadlines:
    """Let it wait for a place, for so long at the most."""
    return replace(
        row,
        state=State.QUEUED,
        queue_expires_at=None if wait is None else now + wait,
        expires_at=None,
    )


def requeue(row: Deadlines) -> Deadlines:
    """Give back its place, for the provider has none; its wait goes on from where it began."""
    return replace(row, state=State.QUEUED, expires_at=None)


def admit(row: Deadlines, now: datetime) -> Deadlines:
    """Give it a place; a start that never finishes has a deadline too."""
    return replace(row, state=State.STARTING, expires_at=now + row.timeout)


def start(
    row: Deadlines,
    now: datetime,
    *,
    since: datetime | None = None,
    rules: Rules = DEFAULT_RULES,
) -> Deadlines:
    """Begin its time now, though the provider may have run it `since` earlier; waiting does not count."""
    started = replace(row, queue_expires_at=None, expires_at=now + row.timeout)
    return _run(touch(started, now), now, since=since, rules=rules)


def pause(row: Deadlines, now: datetime, *, rules: Rules = DEFAULT_RULES) -> Deadlines:
    """Stop its time and keep it by the wall clock; after a failed resume, with what it had before."""
    return replace(
        row,
        state=State.PAUSED,
        queue_expires_at=None,
        started_at=None,
        expires_at=None,
        remaining=_left(row, now),
        retain_until=row.retain_until or now + rules.retention,
        provider_until=None,
    )


def fail_pause(row: Deadlines) -> Deadlines:
    """Let it run on as if nobody had tried."""
    return replace(row, state=State.RUNNING)


def want_back(
    row: Deadlines,
    now: datetime,
    *,
    wait: timedelta | None = None,
    rules: Rules = DEFAULT_RULES,
) -> Deadlines:
    """Ask for it to run: with all of its time if none is left, and kept at least until it could have resumed.

    If it has to wait for a place, then for so long at the most.
    """
    row = replace(row, target=Target.RUNNING)
    if row.retain_until is None:
        return row
    return replace(
        row,
        queue_expires_at=None if wait is None else now + wait,
        remaining=row.remaining or row.timeout,
        retain_until=_later(row.retain_until, now + rules.resume_within),
    )


def resume(
    row: Deadlines,
    now: datetime,
    *,
    since: datetime | None = None,
    rules: Rules = DEFAULT_RULES,
) -> Deadlines:
    """Let the time that was left at the pause run on."""
    resumed = replace(
        row,
        queue_expires_at=None,
        expires_at=now + _left(row, now),
        remaining=None,
        retain_until=None,
    )
    return _run(touch(resumed, now), now, since=since, rules=rules)


def refresh(row: Deadlines, now: datetime, *, rules: Rules = DEFAULT_RULES) -> Deadlines:
    """Resume from a pause that was for the provider's maximum alone: nobody asked, nothing happened in it."""
    return replace(resume(row, now, rules=rules), last_activity_at=row.last_activity_at)


def end(row: Deadlines, state: State) -> Deadlines:
    """Let nothing be due of it any more."""
    return replace(
        row,
        state=state,
        queue_expires_at=None,
        started_at=None,
        awake_until=None,
        expires_at=None,
        remaining=None,
        retain_until=None,
        provider_until=None,
    )


def connect(row: Deadlines, now: datetime, *, timeout: timedelta | None = None) -> Deadlines:
    """Give it at least so much time from now on; connecting never takes any."""
    wanted = row.timeout if timeout is None else timeout
    if row.state in _NOT_BEGUN:
        row = replace(row, timeout=max(row.timeout, wanted))
    if row.expires_at is not None:
        return replace(row, expires_at=max(row.expires_at, now + wanted))
    if row.remaining is not None:
        return replace(row, remaining=max(row.remaining, wanted))
    return row


def set_timeout(row: Deadlines, now: datetime, *, timeout: timedelta) -> Deadlines:
    """Give it exactly so much time from now on, be it less than before."""
    if row.expires_at is not None:
        return replace(row, timeout=timeout, expires_at=now + timeout)
    if row.remaining is not None:
        return replace(row, timeout=timeout, remaining=timeout)
    return replace(row, timeout=timeout)


def touch(row: Deadlines, now: datetime) -> Deadlines:
    """Note that something happened in it; its idle pause is counted from here."""
    return replace(row, last_activity_at=_later(row.last_activity_at, now))


def keep_awake(row: Deadlines, until: datetime) -> Deadlines:
    """Put its idle pause off until then at the least, however quiet it is."""
    return replace(row, awake_until=_later(row.awake_until, until))


def extend_provider(row: Deadlines, now: datetime, *, rules: Rules = DEFAULT_RULES) -> Deadlines:
    """Wind up the dead man's switch: the provider pauses it if no server comes back by then."""
    until = now + rules.provider_timeout
    if row.started_at is not None and rules.longest_run is not None:
        until = min(until, row.started_at + rules.longest_run)
    return replace(row, provider_until=until)


def _run(row: Deadlines, now: datetime, *, since: datetime | None, rules: Rules) -> Deadlines:
    running = replace(row, state=State.RUNNING, started_at=since or now)
    return extend_provider(running, now, rules=rules)


def _left(row: Deadlines, now: datetime) -> timedelta:
    if row.expires_at is not None:
        return max(row.expires_at - now, NOTHING)
    return row.timeout if row.remaining is None else row.remaining


def _later(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else max(one, other)
