from datetime import timedelta
from typing import ClassVar


class SandboxError(Exception):
    """A failure with a message for the caller."""

    code: ClassVar[str] = "internal-error"
    remediation: ClassVar[str | None] = None
    retry_after: timedelta | None = None


class InvalidRequest(SandboxError):
    code = "invalid-request"


class NotFound(SandboxError):
    """Nothing has this name, or it belongs to another tenant; the answer does not tell which."""

    code = "not-found"
    noun: ClassVar[str] = "thing"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no {self.noun} {name!r}.")


class Conflict(SandboxError):
    code = "conflict"


class LimitReached(SandboxError):
    code = "limit-reached"

    def __init__(self, detail: str, *, retry_after: timedelta) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class FeatureUnavailable(SandboxError):
    code = "feature-unavailable"
