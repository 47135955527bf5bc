"""Turns the server's answers into exceptions."""

from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import ValidationError

from sandbox_client.errors import ApiError, UnexpectedAnswer
from sandbox_client.models.error_codes import Problem

_LONGEST_EXCERPT = 200


@cache
def errors_by_code() -> Mapping[str, type[ApiError]]:
    """Map each code to its exception."""
    return {kind.code: kind for kind in _kinds(ApiError) if kind.code != ApiError.code}


def error_of(status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    """Build the exception for an error response."""
    retry_after = _seconds(headers.get("retry-after"))
    try:
        problem = Problem.model_validate_json(content)
    except ValidationError:
        return unexpected(status, content, retry_after=retry_after)
    kind = errors_by_code().get(problem.code, ApiError)
    return kind(
        problem.detail,
        code=problem.code,
        title=problem.title,
        status=problem.status,
        remediation=problem.remediation,
        request_id=problem.request_id,
        retry_after=retry_after,
        errors=problem.errors or (),
    )


def unexpected(
    status: int, content: bytes, *, retry_after: float | None = None
) -> UnexpectedAnswer:
    """Build the exception for a response that is not from a sandbox server."""
    excerpt = content[:_LONGEST_EXCERPT].decode(errors="replace").strip()
    return UnexpectedAnswer(
        f"Unexpected response with status {status}: {excerpt!r}.",
        title="Unexpected response",
        status=status,
        remediation="Check that the URL is a sandbox server, and any proxy in front of it.",
        retry_after=retry_after,
    )


def _kinds(kind: type[ApiError]) -> Iterator[type[ApiError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isascii() and header.isdigit() else None
