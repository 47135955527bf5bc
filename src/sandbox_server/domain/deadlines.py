"""The effect of each event on the deadlines of a sandbox.

    queued                until queue_expires_at
    in a slot             until expires_at           the timeout runs
    paused                until retain_until         the rest of the timeout is in `remaining`

One of the last two is always set, so no sandbox lives forever. Use of a sandbox never shortens its timeout; only
`set_timeout` does. Each function returns the deadlines from `now` on. Events leave `target` unchanged, since a request
may have changed it in the meantime.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sandbox_server.domain.state import OnTimeout, State, Target

NOTHING = timedelta(0)
_NOT_BEGUN = frozenset({State.QUEUED, State.STARTING})


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """The columns that determine when a sandbox is due."""

    state: State
    target: Target
    timeout: timedelta
    on_timeout: OnTimeout = OnTimeout.PAUSE
    idle_timeout: timedelta | None = None
    queue_expires_at: datetime | None = None
    started_at: datetime | None = None  # start of the current run, without a pause
    last_activity_at: datetime | None = None
    awake_until: datetime | None = None
    expires_at: datetime | None = None
    remaining: timedelta | None = None
    retain_until: datetime | None = None
    provider_until: datetime | None = None  # when the provider pauses it by itself


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules for all sandboxes of a server or of one backend."""

    retention: timedelta = timedelta(days=30)
    resume_within: timedelta = timedelta(hours=1)
    """How long a paused sandbox is kept at least after a request to resume it."""
    provider_timeout: timedelta = timedelta(minutes=15)
    """The provider pauses a sandbox after this time without an extension by a server."""
    longest_run: timedelta | None = None
    """The longest run without a pause that the provider allows."""
    quiet_within: timedelta = timedelta(minutes=10)
    """How long before the longest run a quiet moment for the pause is sought."""
    quiet_after: timedelta = timedelta(seconds=30)
    """A moment is quiet after this long without activity."""
    can_pause: bool = True
    """Whether the provider pauses sandboxes; otherwise they run until their timeout, which deletes them."""
    pause_takes: timedelta = timedelta(minutes=2)
    """How long before the longest run the sandbox is paused in any case."""


DEFAULT_RULES = Rules()


def queue(row: Deadlines, now: datetime, *, wait: timedelta | None) -> Deadlines:
    """Queue the sandbox, at most for `wait`."""
    return replace(
        row,
        state=State.QUEUED,
        queue_expires_at=None if wait is None else now + wait,
        expires_at=None,
    )


def requeue(row: Deadlines) -> Deadlines:
    """Return the sandbox to the queue; its queue timeout continues."""
    return replace(row, state=State.QUEUED, expires_at=None)


def admit(row: Deadlines, now: datetime) -> Deadlines:
    """Admit the sandbox; a start that does not finish expires too."""
    return replace(row, state=State.STARTING, expires_at=now + row.timeout)


def start(
    row: Deadlines,
    now: datetime,
    *,
    since: datetime | None = None,
    rules: Rules = DEFAULT_RULES,
) -> Deadlines:
    """Start the timeout now, even if the provider has run the sandbox `since` earlier; queue time does not count."""
    started = replace(row, queue_expires_at=None, expires_at=now + row.timeout)
    return _run(touch(started, now), now, since=since, rules=rules)


def pause(row: Deadlines, now: datetime, *, rules: Rules = DEFAULT_RULES) -> Deadlines:
    """Stop the timeout and start the retention; after a failed resume with their previous values."""
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
    """Continue to run after a failed pause."""
    return replace(row, state=State.RUNNING)


def want_back(
    row: Deadlines,
    now: datetime,
    *,
    wait: timedelta | None = None,
    rules: Rules = DEFAULT_RULES,
) -> Deadlines:
    """Request a resume: with the whole timeout if none is left, and retained at least until the resume.

    If it is queued, then at most for `wait`.
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
    """Continue the timeout with the rest at the pause."""
    resumed = replace(
        row,
        queue_expires_at=None,
        expires_at=now + _left(row, now),
        remaining=None,
        retain_until=None,
    )
    return _run(touch(resumed, now), now, since=since, rules=rules)


def refresh(row: Deadlines, now: datetime, *, rules: Rules = DEFAULT_RULES) -> Deadlines:
    """Resume after a pause for the provider's longest run, which is no activity."""
    return replace(resume(row, now, rules=rules), last_activity_at=row.last_activity_at)


def end(row: Deadlines, state: State) -> Deadlines:
    """Clear every deadline."""
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
    """Extend the timeout to at least `timeout` from now; never shorten it."""
    wanted = row.timeout if timeout is None else timeout
    if row.state in _NOT_BEGUN:
        row = replace(row, timeout=max(row.timeout, wanted))
    if row.expires_at is not None:
        return replace(row, expires_at=max(row.expires_at, now + wanted))
    if row.remaining is not None:
        return replace(row, remaining=max(row.remaining, wanted))
    return row


def set_timeout(row: Deadlines, now: datetime, *, timeout: timedelta) -> Deadlines:
    """Set the timeout from now, even if that shortens it."""
    if row.expires_at is not None:
        return replace(row, timeout=timeout, expires_at=now + timeout)
    if row.remaining is not None:
        return replace(row, timeout=timeout, remaining=timeout)
    return replace(row, timeout=timeout)


def touch(row: Deadlines, now: datetime) -> Deadlines:
    """Record activity; the idle timeout starts again."""
    return replace(row, last_activity_at=_later(row.last_activity_at, now))


def keep_awake(row: Deadlines, until: datetime) -> Deadlines:
    """Postpone the idle pause to at least `until`, without activity."""
    return replace(row, awake_until=_later(row.awake_until, until))


def extend_provider(row: Deadlines, now: datetime, *, rules: Rules = DEFAULT_RULES) -> Deadlines:
    """Extend the provider's own timeout, after which it pauses sandboxes that no server manages any more."""
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
