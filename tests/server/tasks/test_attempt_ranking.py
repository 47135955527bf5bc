"""Which attempt is chosen, and what is said about it."""

import pytest

from sandbox_server.db.models import TaskAttempt
from sandbox_server.tasks.attempts.ranking import choose, explain_choice, explain_refusal


def attempt(number, *, kind=None, checks=None, lines=1, usd=0.0):
    return TaskAttempt(
        number=number,
        awaits=None if kind is None else {"kind": kind},
        checks=checks,
        files=1,
        added=lines,
        removed=0,
        spent_usd=usd,
    )


@pytest.mark.parametrize(
    ("better", "other", "reason"),
    [
        ({"checks": "failed"}, {"kind": "question"}, "needs nobody's help"),
        ({"kind": "question"}, {"kind": "run-failed"}, "is nearer to a result"),
        ({"kind": "run-failed"}, {"kind": "nothing-changed"}, "is nearer to a result"),
        ({"checks": "succeeded", "lines": 9}, {"checks": "failed"}, "has better checks"),
        ({"checks": "succeeded", "lines": 9}, {"checks": "inert"}, "has better checks"),
        ({"checks": "timed-out", "lines": 9}, {"checks": "failed"}, "has better checks"),
        ({"lines": 3, "usd": 9}, {"lines": 4}, "changes less"),
        ({"usd": 1}, {"usd": 2}, "cost less"),
    ],
)
def test_ranking__decides_by_the_first_difference(better, other, reason):
    attempts = [attempt(1, **other), attempt(2, **better)]
    chosen = choose(attempts)
    assert chosen.number == 2
    assert explain_choice(chosen, attempts[:1]).startswith(f"Chosen: it {reason}")
    told = explain_refusal(attempts[0], chosen)
    assert told.startswith(f"Not chosen: attempt 2 {reason}")


def test_ranking__of_equal_attempts_takes_the_first():
    attempts = [attempt(3), attempt(1), attempt(2)]
    assert choose(attempts).number == 1
    assert "attempt 1 came first" in explain_refusal(attempts[0], choose(attempts))
