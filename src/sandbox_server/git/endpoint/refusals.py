from http import HTTPStatus

from starlette.responses import PlainTextResponse

from sandbox_server.domain.errors import SandboxError
from sandbox_server.http.problems import status_of


class GitRefused(Exception):
    """The request is refused; git shows the text with `remote:`."""

    def __init__(
        self, status: HTTPStatus, text: str, *, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers

    def response(self) -> PlainTextResponse:
        return PlainTextResponse(f"sandbox-server: {self.text}\n", self.status, self.headers)


def unknown_path() -> GitRefused:
    return GitRefused(HTTPStatus.NOT_FOUND, "only git's smart HTTP protocol is served here.")


def unauthenticated() -> GitRefused:
    return GitRefused(
        HTTPStatus.UNAUTHORIZED,
        "the token of this sandbox is missing or no longer valid.",
        headers={"WWW-Authenticate": 'Basic realm="sandbox"'},
    )


def not_granted(address: str) -> GitRefused:
    return GitRefused(
        HTTPStatus.FORBIDDEN,
        f"{address} is not a repository of this sandbox. Its task's repository, and those in the "
        "repository's setting `reads`, can be fetched.",
    )


def not_pushable(address: str) -> GitRefused:
    return GitRefused(
        HTTPStatus.FORBIDDEN,
        f"this sandbox may fetch {address}, and not push to it. Request `push` when the sandbox is "
        "created, or use a task.",
    )


def busy(status: HTTPStatus) -> GitRefused:
    return GitRefused(
        status,
        "too many git requests are in progress. Try again in a moment.",
        headers={"Retry-After": "5"},
    )


def malformed(text: str) -> GitRefused:
    return GitRefused(HTTPStatus.BAD_REQUEST, text)


def of_error(error: SandboxError) -> GitRefused:
    """Tell git's user about an error that is known to the API."""
    retry_after = getattr(error, "retry_after", None)
    headers = (
        None if retry_after is None else {"Retry-After": str(round(retry_after.total_seconds()))}
    )
    return GitRefused(HTTPStatus(status_of(type(error))), str(error), headers=headers)
