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


def test_every_error_has_a_code_of_its_own():
    codes = [error.code for error in tree()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)


def test_every_error_has_a_title_of_its_own_without_a_full_stop():
    titles = [entry.title for entry in ERROR_CODES.values()]
    assert len(titles) == len(set(titles))
    assert all(title[0].isupper() and not title.endswith(".") for title in titles)


def test_every_remediation_is_a_sentence():
    assert all(error.remediation.endswith(".") for error in tree() if error.remediation)


def test_the_tree_in_the_docstring_names_every_error_of_the_module():
    named = set(re.findall(r"\b[A-Z][A-Za-z]+\b", errors.__doc__ or ""))
    assert {error.__name__ for error in tree() if error.__module__ == errors.__name__} <= named


def test_the_two_limits_are_told_apart_by_code_and_say_when_to_come_back():
    wait = timedelta(seconds=3)
    full = QueueFull(limit=5, retry_after=wait)
    fast = RateLimited(per_second=2.5, retry_after=wait)
    assert (full.code, fast.code) == ("queue-full", "rate-limited")
    assert full.retry_after == fast.retry_after == wait
    assert str(fast) == "Rate limit exceeded: this API key may send 2.5 requests per second."


def test_what_is_not_there_is_named():
    assert str(SandboxNotFound("abc")) == "There is no sandbox 'abc'."


def test_an_idempotency_mismatch_names_the_key():
    assert "'order-7'" in str(IdempotencyMismatch("order-7"))


def test_a_failure_of_a_backend_names_the_backend_and_its_reason():
    error = BackendUnavailable("local", "connection refused")
    assert str(error) == "Backend 'local': connection refused"
    assert error.retry_after is None
