"""Failures of the HTTP exchange itself: before any route, or independent of the domain's rules."""

from dataclasses import dataclass

from sandbox_client.models import ERROR_CODES


@dataclass(frozen=True)
class Fault:
    code: str
    detail: str
    remediation: str | None = None

    @property
    def status(self) -> int:
        return ERROR_CODES[self.code].status

    @property
    def title(self) -> str:
        return ERROR_CODES[self.code].title


MALFORMED = Fault("malformed-request", "The request could not be parsed.")
NO_ROUTE = Fault("route-not-found", "There is no route with this path.", "/docs lists all routes.")
WRONG_METHOD = Fault(
    "method-not-allowed", "This path does not support the method.", "See the Allow header."
)
TOO_LARGE = Fault("body-too-large", "The request body is larger than allowed.")
HEAD_TOO_LARGE = Fault(
    "head-too-large",
    "The request line and the headers have too many bytes, or there are too many headers.",
)
NOT_JSON = Fault(
    "unsupported-media-type",
    "The request body is not declared as JSON.",
    "Send it with `Content-Type: application/json`.",
)
INVALID = Fault(
    "validation-failed", "The request has invalid values.", "`errors` lists each invalid value."
)
UNKNOWN = Fault(
    "internal-error",
    "An unexpected error occurred in the server.",
    "Retry; if the error persists, give the request_id to the operator.",
)
NO_DATABASE = Fault("database-unavailable", "The server cannot reach its database.", "Retry later.")


class ExchangeError(Exception):
    """Raised outside of any route."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault


class Malformed(ExchangeError):
    def __init__(self, detail: str) -> None:
        super().__init__(MALFORMED, detail)


class BodyTooLarge(ExchangeError):
    def __init__(self, limit: int) -> None:
        super().__init__(TOO_LARGE, f"The request body is larger than {limit} bytes.")
