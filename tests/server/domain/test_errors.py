import re
from collections.abc import Iterator
from datetime import timedelta

from sandbox_client.models import ERROR_CODES
from sandbox_server.domain import errors
from sandbox_server.domain.errors import (
    BackendUnavailable,
    IdempotencyMismatch,
    QueueFull,
    RateLimited,
    SandboxError,
    SandboxNotFound,
)


def tree(root: type[SandboxError] = SandboxError) -> Iterator[type[SandboxError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def test_error__has_a_unique_code():
    codes = [error.code for error in tree()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)


def test_error__has_a_unique_title_without_a_full_stop():
    titles = [entry.title for entry in ERROR_CODES.values()]
    assert len(titles) == len(set(titles))
    assert all(title[0].isupper() and not title.endswith(".") for title in titles)


def test_error__remediation_is_a_sentence():
    assert all(error.remediation.endswith(".") for error in tree() if error.remediation)


def test_errors__the_docstring_lists_every_class():
    named = set(re.findall(r"\b[A-Z][A-Za-z]+\b", errors.__doc__ or ""))
    assert {error.__name__ for error in tree() if error.__module__ == errors.__name__} <= named


def test_limits__differ_by_code_and_name_a_retry_time():
    wait = timedelta(seconds=3)
    full = QueueFull(limit=5, retry_after=wait)
    fast = RateLimited(per_second=2.5, retry_after=wait)
    assert (full.code, fast.code) == ("queue-full", "rate-limited")
    assert full.retry_after == fast.retry_after == wait
    assert str(fast) == "Rate limit exceeded: this API key may send 2.5 requests per second."


def test_not_found__names_the_subject():
    assert str(SandboxNotFound("abc")) == "There is no sandbox 'abc'."


def test_idempotency_mismatch__names_the_key():
    assert "'order-7'" in str(IdempotencyMismatch("order-7"))


def test_backend_error__names_backend_and_reason():
    error = BackendUnavailable("local", "connection refused")
    assert str(error) == "Backend 'local': connection refused"
    assert error.retry_after is None
