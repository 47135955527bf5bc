"""Turns the server's answers into exceptions."""

from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import ValidationError

from sandbox_client.errors import ApiError, UnexpectedAnswer
from sandbox_client.models.problems import Problem

_LONGEST_EXCERPT = 200


@cache
def errors_by_code() -> Mapping[str, type[ApiError]]:
    """Find the exception for each code of the server."""
    return {kind.code: kind for kind in _kinds(ApiError) if kind.code != ApiError.code}


def error_of(status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    """Make the exception for an answer that is no success."""
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
    """Make the exception for an answer that no sandbox server gives."""
    excerpt = content[:_LONGEST_EXCERPT].decode(errors="replace").strip()
    return UnexpectedAnswer(
        f"It answered with status {status}, and not as a sandbox server does: {excerpt!r}.",
        title="Unexpected answer",
        status=status,
        remediation="See whether the address is a sandbox server's, and what a proxy in front of it says.",
        retry_after=retry_after,
    )


def _kinds(kind: type[ApiError]) -> Iterator[type[ApiError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isascii() and header.isdigit() else None
