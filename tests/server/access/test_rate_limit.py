from datetime import timedelta

import pytest

from sandbox_server.access.authenticator import RateLimit
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import RateLimited
from sandbox_server.domain.ids import ApiKeyId, TenantId


@pytest.fixture
def limit(clock):
    return RateLimit(clock=clock)


def caller(rate, key="k"):
    return Caller(
        tenant_id=TenantId("t"), key_id=ApiKeyId(key), scopes=frozenset(), rate_per_s=rate
    )


def takes(limit, caller):
    """Count the requests until one is rejected."""
    for count in range(10_000):
        try:
            limit.take(caller)
        except RateLimited:
            return count
    return None


@pytest.mark.parametrize(("rate", "at_once"), [(5, 5), (1000, 1000), (1, 1), (0.1, 1), (2.5, 2)])
def test_rate_limit__the_burst_is_one_second_of_requests(limit, rate, at_once):
    assert takes(limit, caller(rate)) == at_once


def test_rate_limit__requests_are_allowed_as_the_bucket_refills(limit, clock):
    takes(limit, caller(5))
    clock.now += 0.4
    assert takes(limit, caller(5)) == 2


def test_rate_limit__an_idle_key_accumulates_at_most_the_burst(limit, clock):
    takes(limit, caller(5))
    clock.now += 3600
    assert takes(limit, caller(5)) == 5


def test_rate_limit__the_error_says_when_to_retry(limit, clock):
    takes(limit, caller(0.5))
    with pytest.raises(RateLimited) as refused:
        limit.take(caller(0.5))
    assert refused.value.retry_after == timedelta(seconds=2)
    clock.now += 2
    limit.take(caller(0.5))


def test_rate_limit__rejected_requests_take_no_token(limit, clock):
    takes(limit, caller(5))
    takes(limit, caller(5))
    clock.now += 0.2
    assert takes(limit, caller(5)) == 1


def test_rate_limit__each_key_has_its_own_bucket(limit):
    takes(limit, caller(1, key="a"))
    assert takes(limit, caller(1, key="b")) == 1


def test_rate_limit__a_key_without_a_rate_is_unlimited(limit):
    assert takes(limit, caller(None)) is None
