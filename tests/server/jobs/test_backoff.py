from datetime import timedelta

from sandbox_server.jobs.policy import Backoff

BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=60))


def test_backoff__the_range_of_each_delay_doubles():
    for attempts, bound in enumerate([1, 2, 4, 8, 16, 32, 60, 60], start=1):
        drawn = [BACKOFF.delay(attempts).total_seconds() for _ in range(200)]
        assert bound / 2 <= min(drawn)
        assert max(drawn) <= bound


def test_backoff__jobs_that_failed_together_retry_apart():
    assert len({BACKOFF.delay(1) for _ in range(100)}) > 90


def test_backoff__any_number_of_attempts_has_a_delay():
    assert BACKOFF.delay(10_000) <= BACKOFF.longest
    assert BACKOFF.delay(0) <= BACKOFF.first
