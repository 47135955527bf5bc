"""Answers of forges: their limits, their errors, their documents."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sandbox_server.domain.errors import (
    ForgeCredentialRefused,
    ForgeError,
    ForgeLimited,
    ForgePermissionMissing,
    ForgeRefused,
    ForgeResourceNotFound,
    ForgeUnavailable,
)
from sandbox_server.domain.tasks.forges import Validated

T = TypeVar("T")

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY, _FAILED = 401, 403, 404, 429, 500
_FIRST_SECONDARY_PAUSE = timedelta(minutes=1)


class ForgeModel(BaseModel):
    """Base of what the server reads from forges; all other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The request quota as an answer reports it."""

    resource: str = "core"
    quota: int | None = None
    remaining: int | None = None
    reset_at: datetime | None = None
    retry_after: timedelta | None = None
    is_exceeded: bool = False

    @property
    def is_known(self) -> bool:
        return self.is_exceeded or self.remaining is not None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A complete answer of a forge."""

    forge: str
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    secrets: Sequence[str] = field(default=(), repr=False)
    """Secrets to remove from messages, even if the forge repeats them."""

    @property
    def is_unchanged(self) -> bool:
        return self.status == 304  # noqa: PLR2004

    @property
    def validator(self) -> str | None:
        return self.headers.get("etag")

    def read(self, model: type[T]) -> T:
        """Read the fields that the server needs."""
        try:
            return TypeAdapter(model).validate_json(self.body)
        except ValidationError as error:
            where = ".".join(str(step) for step in error.errors()[0]["loc"]) or "the document"
            raise ForgeUnavailable(
                self.forge, f"The answer cannot be read: {where} is missing or invalid."
            ) from None

    def require_success(self, *, about: str) -> "Answer":
        """Raise the `ForgeError` that fits the status."""
        if self.status < 400:  # noqa: PLR2004
            return self
        raise self._error(about)

    def _error(self, about: str) -> ForgeError:
        limits, said = self.limits, f"{about}: {self.message}"
        if limits.is_exceeded:
            return ForgeLimited(self.forge, said, retry_after=limits.retry_after)
        match self.status:
            case 401:
                return ForgeCredentialRefused(self.forge, said)
            case 403:
                needed = self.headers.get("x-accepted-github-permissions")
                return ForgePermissionMissing(self.forge, said, permission=needed)
            case 404 | 410:
                return ForgeResourceNotFound(self.forge, said)
            case status if status >= _FAILED:
                return ForgeUnavailable(self.forge, said, retry_after=limits.retry_after)
        return ForgeRefused(self.forge, said)

    @property
    def message(self) -> str:
        """The forge's explanation."""
        document = self._document()
        told = document.get("message") or document.get("error") or ""
        details = [_detail(each) for each in _list(document.get("errors"))]
        words = "; ".join(text for text in (_text(told), *details) if text)
        for secret in self.secrets:
            words = words.replace(secret, "…")
        return f"HTTP {self.status}" + (f", {words}" if words else "")

    @property
    def limits(self) -> Limits:
        """Read the quota: GitHub's `x-ratelimit-*`, GitLab's `ratelimit-*`, and Retry-After."""
        headers = self.headers
        remaining = _number(headers, "x-ratelimit-remaining", "ratelimit-remaining")
        reset = _number(headers, "x-ratelimit-reset", "ratelimit-reset")
        after = _number(headers, "retry-after")
        return Limits(
            resource=headers.get("x-ratelimit-resource", "core"),
            quota=_number(headers, "x-ratelimit-limit", "ratelimit-limit"),
            remaining=remaining,
            reset_at=None if reset is None else datetime.fromtimestamp(reset, UTC),
            retry_after=None if after is None else timedelta(seconds=after),
            is_exceeded=self._is_limited(remaining, after),
        )

    def _is_limited(self, remaining: int | None, after: int | None) -> bool:
        """Tell a limit from a missing permission: GitHub answers both with 403."""
        if self.status == _TOO_MANY:
            return True
        if self.status != _FORBIDDEN:
            return False
        return remaining == 0 or after is not None or "rate limit" in self.message.lower()

    def _document(self) -> Mapping[str, Any]:
        try:
            document = json.loads(self.body)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


def validated(answer: Answer, validator: str | None, read: Callable[[Answer], T]) -> Validated[T]:
    """Read an answer, unless it says that nothing has changed since the validator that was sent."""
    if answer.is_unchanged:
        return Validated(value=None, validator=validator)
    return Validated(value=read(answer), validator=answer.validator)


def second_of(instant: datetime) -> str:
    """Write an instant as forges take it in a query."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pause_after(limits: Limits, *, now: datetime, strikes: int) -> timedelta:
    """Decide how long to stop after a limit, in the order that GitHub documents."""
    if limits.retry_after is not None:
        return limits.retry_after
    if limits.remaining == 0 and limits.reset_at is not None:
        return max(limits.reset_at - now, timedelta(seconds=1))
    doublings: int = 2 ** min(strikes, 6)
    return min(_FIRST_SECONDARY_PAUSE * doublings, timedelta(hours=1))


def _number(headers: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        value = headers.get(name, "")
        if value.isdecimal():
            return int(value)
    return None


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def _detail(error: object) -> str:
    if isinstance(error, dict):
        return _text(error.get("message") or " ".join(map(str, error.values())))
    return _text(error)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)
