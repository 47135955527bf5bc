import pytest

from sandbox_client.errors import (
    InternalError,
    NotReady,
    QueueFull,
    RateLimited,
    SandboxNotFound,
    StartFailed,
    TooManyAtOnce,
    UnexpectedAnswer,
    Unreachable,
)
from sandbox_client.protocol.deadline import Deadline
from sandbox_client.protocol.retries import LONGEST_DELAY_S, Retries

REFUSED = Unreachable("http://x", "refused", was_sent=False)
LOST = Unreachable("http://x", "lost", was_sent=True)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def retries(*, seconds=60, **options):
    return Retries(Deadline(seconds), **{"may_repeat": True, **options})


def of_status(kind, status, retry_after=None):
    return kind("detail", status=status, retry_after=retry_after)


@pytest.mark.parametrize(
    ("error", "if_it_may_be_repeated", "if_not"),
    [
        pytest.param(REFUSED, True, True, id="refused"),
        pytest.param(LOST, True, False, id="lost"),
        pytest.param(of_status(RateLimited, 429), True, True, id="rate"),
        pytest.param(of_status(TooManyAtOnce, 429), True, True, id="at-once"),
        pytest.param(of_status(NotReady, 503), True, True, id="not-ready"),
        pytest.param(of_status(QueueFull, 429), False, False, id="queue-full"),
        pytest.param(of_status(InternalError, 503), True, False, id="unavailable"),
        pytest.param(of_status(InternalError, 500), False, False, id="internal"),
        pytest.param(of_status(StartFailed, 502), False, False, id="start-failed"),
        pytest.param(of_status(UnexpectedAnswer, 502), True, False, id="gateway"),
        pytest.param(of_status(UnexpectedAnswer, 200), False, False, id="nonsense"),
        pytest.param(of_status(SandboxNotFound, 404), False, False, id="not-found"),
    ],
)
def test_retries__only_safe_and_transient_failures(error, if_it_may_be_repeated, if_not):
    for may_repeat, is_tried in ((True, if_it_may_be_repeated), (False, if_not)):
        attempts = retries(may_repeat=may_repeat)
        if is_tried:
            assert attempts.delay_after(error) > 0
        else:
            with pytest.raises(type(error)):
                attempts.delay_after(error)


def test_retries__backoff_grows_up_to_a_limit():
    attempts = retries(seconds=None)
    pauses = [attempts.delay_after(LOST) for _ in range(20)]
    assert pauses[0] <= 0.1
    assert all(pause <= LONGEST_DELAY_S for pause in pauses)
    assert pauses[-1] >= LONGEST_DELAY_S / 2


def test_retries__retry_after_sets_the_delay():
    assert retries().delay_after(of_status(RateLimited, 429, retry_after=7)) == 7


def test_retries__no_retry_beyond_the_deadline():
    with pytest.raises(RateLimited):
        retries(seconds=5).delay_after(of_status(RateLimited, 429, retry_after=7))


def test_retries__outage_has_a_shorter_deadline_than_rejections():
    attempts = retries(seconds=600, outage=Deadline(0))
    assert attempts.delay_after(of_status(RateLimited, 429, retry_after=500)) == 500
    with pytest.raises(Unreachable):
        attempts.delay_after(REFUSED)


def test_retries__not_ready_is_raised_without_a_wait():
    with pytest.raises(NotReady):
        retries(may_wait=False).delay_after(of_status(NotReady, 503))


def test_retries__lost_responses_are_remembered():
    attempts = retries()
    attempts.delay_after(REFUSED)
    assert not attempts.was_lost
    attempts.delay_after(LOST)
    assert attempts.was_lost


def test_deadline__expires():
    clock = Clock()
    deadline = Deadline(2, clock=clock)
    assert deadline.lasts(1)
    assert deadline.at_most(5) == 2
    clock.now = 3
    assert deadline.is_over
    assert not Deadline(None).is_over
