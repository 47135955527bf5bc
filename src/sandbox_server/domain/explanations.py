"""Explanations of deadlines for people, with the arithmetic behind them."""

from datetime import UTC, datetime, timedelta

from sandbox_server.domain.deadlines import DEFAULT_RULES, Deadlines, Rules
from sandbox_server.domain.due import Due, Why
from sandbox_server.domain.state import State, Target

_PLAIN = {
    Why.UNSETTLED: "Continued: the state was {row.state}, the target {row.target}.",
    Why.QUEUE_DEADLINE: "Queue timeout: no slot was free by {at}.",
    Why.RETENTION: "Retention expired: not resumed by {at}.",
    Why.PROVIDER_TIMEOUT: "The provider's timeout, half elapsed at {at}, is extended.",
}
_UNITS = ((86400, "day"), (3600, "h"), (60, "min"), (1, "s"))


def format_duration(duration: timedelta) -> str:
    """Format a duration in its two largest units, as in `1 h 30 min`."""
    left = round(duration.total_seconds())
    parts = []
    for seconds, unit in _UNITS:
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}")
    return " ".join(parts[:2]) or "0 s"


def format_instant(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def explain(due: Due, row: Deadlines, *, rules: Rules = DEFAULT_RULES) -> str:
    """Explain why a sandbox is due."""
    match due.why:
        case Why.EXPIRY:
            return _explain_expiry(due, row)
        case Why.IDLE:
            return _explain_idleness(due, row)
        case Why.LONGEST_RUN:
            return _explain_longest_run(row, rules)
        case plain:
            return _PLAIN[plain].format(at=format_instant(due.at), row=row)


def explain_change(before: Deadlines, after: Deadlines) -> str | None:
    """Explain a change of the timeout; None if there is none."""
    if before.expires_at and after.expires_at and before.expires_at != after.expires_at:
        was, now = format_instant(before.expires_at), format_instant(after.expires_at)
        return f"Expires at {now} instead of {was}, {_by(after.expires_at - before.expires_at)}."
    if before.remaining is not None and after.remaining is not None:
        gained = after.remaining - before.remaining
        if gained:
            return f"{format_duration(after.remaining)} left after the resume, {_by(gained)}."
    return None


def _explain_expiry(due: Due, row: Deadlines) -> str:
    if row.state is State.STARTING:
        return f"Start timeout: not started by {format_instant(due.at)}, after {format_duration(row.timeout)}."
    end = "deleted" if due.target is Target.GONE else "paused"
    if row.started_at is not None and row.started_at + row.timeout == due.at:
        since = f"{format_instant(row.started_at)} + {format_duration(row.timeout)} of timeout"
        return f"Timeout expired: started {since} = {format_instant(due.at)}; {end}."
    return f"Timeout expired at {format_instant(due.at)} (timeout {format_duration(row.timeout)}); {end}."


def _explain_idleness(due: Due, row: Deadlines) -> str:
    at = format_instant(due.at)
    if row.idle_timeout is None or row.last_activity_at is None:
        return f"Idle: no activity, kept awake until {at}."
    arithmetic = f"{format_instant(row.last_activity_at)} + {format_duration(row.idle_timeout)} of idle timeout"
    if row.last_activity_at + row.idle_timeout < due.at:
        return f"Idle: last activity {arithmetic}; kept awake until {at}."
    return f"Idle: last activity {arithmetic} = {at}."


def _explain_longest_run(row: Deadlines, rules: Rules) -> str:
    if row.started_at is None or rules.longest_run is None:
        return "The provider limits the length of a run."
    return (
        f"Running since {format_instant(row.started_at)}; the provider ends a run after "
        f"{format_duration(rules.longest_run)}, and a pause starts a new one."
    )


def _by(change: timedelta) -> str:
    return f"{format_duration(abs(change))} {'more' if change > timedelta(0) else 'less'}"
