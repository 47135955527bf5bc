"""What goes wrong in the exchange itself, before or beside any rule of the domain."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    status: int
    code: str
    title: str
    detail: str
    remediation: str | None = None


MALFORMED = Fault(400, "malformed-request", "Malformed request", "It could not be read.")
NO_ROUTE = Fault(
    404,
    "route-not-found",
    "No such route",
    "There is nothing at this path.",
    "/docs lists all routes.",
)
WRONG_METHOD = Fault(
    405,
    "method-not-allowed",
    "Method not allowed",
    "This path knows other methods only.",
    "The header Allow lists them.",
)
TOO_LARGE = Fault(413, "body-too-large", "Body is too large", "It is larger than allowed here.")
HEAD_TOO_LARGE = Fault(
    431,
    "head-too-large",
    "Request's head is too large",
    "The request line and the headers have more bytes than are read here, or there are too many headers.",
)
NOT_JSON = Fault(
    415,
    "unsupported-media-type",
    "Body is of another type",
    "The body is not declared as JSON.",
    "Send it with `Content-Type: application/json`.",
)
INVALID = Fault(
    422,
    "validation-failed",
    "Request is not valid",
    "Some of what was sent is not valid.",
    "See `errors` for what is wrong, and where.",
)
UNKNOWN = Fault(
    500,
    "internal-error",
    "Something went wrong",
    "The server failed to answer. This is not your fault.",
    "Try again; if it persists, give the operator the request_id.",
)
NO_DATABASE = Fault(
    503,
    "database-unavailable",
    "Database does not answer",
    "The server cannot reach its database.",
    "Try again later.",
)


class ExchangeError(Exception):
    """A fault that is found outside of any route."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault


class Malformed(ExchangeError):
    def __init__(self, detail: str) -> None:
        super().__init__(MALFORMED, detail)


class BodyTooLarge(ExchangeError):
    def __init__(self, limit: int) -> None:
        super().__init__(TOO_LARGE, f"The body is larger than {limit} bytes.")
