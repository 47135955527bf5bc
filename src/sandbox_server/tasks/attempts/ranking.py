"""Which attempt is chosen, and why: decided by what the server has seen, in an order that does not depend on chance."""

from collections.abc import Sequence

from sandbox_server.db.models import TaskAttempt
from sandbox_server.domain.tasks.stages import RunOutcome
from sandbox_server.tasks.stages.work import WaitKind

_Rank = tuple[bool, int, int, int, float, int]

_WAITS = (None, WaitKind.QUESTION, WaitKind.RUN_FAILED, WaitKind.BUDGET, WaitKind.SAVE)
"""Reasons why attempts wait, the nearest to a result first: an answer may be all that is missing."""

_CHECKS = {
    RunOutcome.SUCCEEDED: 0,
    RunOutcome.INERT: 1,
    RunOutcome.INFRASTRUCTURE: 1,
    RunOutcome.TIMED_OUT: 1,
    RunOutcome.FAILED: 2,
}
_NO_CHECKS = 1
_BETTER = (
    "needs nobody's help",
    "is nearer to a result",
    "has better checks",
    "changes less",
    "cost less",
    "came first",
)


def choose(attempts: Sequence[TaskAttempt]) -> TaskAttempt:
    """Choose by: needs no person, checks, fewer changed lines, lower cost, lower number."""
    return min(attempts, key=_rank)


def explain_choice(chosen: TaskAttempt, others: Sequence[TaskAttempt]) -> str:
    """Say what decided against the best of the others."""
    other = choose(others)
    return f"Chosen: it {_decisive(chosen, other)}, compared with attempt {other.number}. {_describe(chosen)}"


def explain_wish(chosen: TaskAttempt) -> str:
    return f"Chosen by request. {_describe(chosen)}"


def explain_refusal(attempt: TaskAttempt, chosen: TaskAttempt, *, is_wanted: bool = False) -> str:
    if is_wanted:
        return f"Not chosen: attempt {chosen.number} was, by request. {_describe(attempt)}"
    return f"Not chosen: attempt {chosen.number} {_decisive(chosen, attempt)}. {_describe(attempt)}"


def _decisive(better: TaskAttempt, other: TaskAttempt) -> str:
    pairs = zip(_BETTER, _rank(better), _rank(other), strict=True)
    return next(reason for reason, ours, theirs in pairs if ours != theirs)


def _rank(attempt: TaskAttempt) -> _Rank:
    kind = None if attempt.awaits is None else attempt.awaits["kind"]
    waits = _WAITS.index(kind) if kind in _WAITS else len(_WAITS)
    checks = _NO_CHECKS if attempt.checks is None else _CHECKS[RunOutcome(attempt.checks)]
    return (
        waits > 0,
        waits,
        checks,
        attempt.added + attempt.removed,
        attempt.spent_usd,
        attempt.number,
    )


def _describe(attempt: TaskAttempt) -> str:
    files = "1 file" if attempt.files == 1 else f"{attempt.files} files"
    parts = [f"{files} changed (+{attempt.added} -{attempt.removed})"]
    if attempt.checks is not None:
        parts.append(f"checks {attempt.checks}")
    if attempt.awaits is not None:
        parts.append(f"it waits for a person ({attempt.awaits['kind']})")
    if attempt.spent_usd:
        parts.append(f"{attempt.spent_usd:.2f} USD")
    return f"{'; '.join(parts)}."
