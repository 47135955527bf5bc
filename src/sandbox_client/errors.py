"""What can go wrong, as callers catch it.

SandboxError
  AddressUnknown       nobody says where the server is, or with which key to ask it
  Unreachable          it does not answer; `was_sent`: what was asked may have happened
  WaitOver             what was waited for has not come true in time; also a TimeoutError
  CommandFailed        a command that was to be checked did not exit with 0
  StreamBroken         what was sent to a terminal may not have arrived
  ApiError             the server has answered with a problem: `code`, `title`, `detail`, `remediation`, …
    UnexpectedAnswer   it was no answer of a sandbox server
    one for each `code` that the server knows, in its families:
    InvalidRequest  NotFound  Conflict  AccessDenied  LimitReached  BackendError  RequestFault

A code that this client does not know is an ApiError with that code.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from pydantic import ValidationError

from sandbox_client.models.commands import CommandOutcome
from sandbox_client.models.error_codes import ERROR_CODES
from sandbox_client.models.problems import InputProblem, Problem
from sandbox_client.models.sandboxes import SandboxRead

_LONGEST_EXCERPT = 200


class SandboxError(Exception):
    """Whatever this client raises of its own."""


class AddressUnknown(SandboxError, ValueError):
    """Nobody says where the server is, or with which key to ask it."""


class Unreachable(SandboxError, ConnectionError):
    """The server does not answer."""

    def __init__(self, url: str, reason: str, *, was_sent: bool) -> None:
        advice = (
            "Whether it was carried out is unknown."
            if was_sent
            else "See whether it runs, and whether SANDBOX_SERVER_URL or `url` is its address."
        )
        super().__init__(f"The server at {url} does not answer: {reason}. {advice}")
        self.url = url
        self.reason = reason
        self.was_sent = was_sent


class WaitOver(SandboxError, TimeoutError):
    """What was waited for has not come true in time; `sandbox` is how it was then."""

    def __init__(self, detail: str, *, sandbox: SandboxRead | None = None) -> None:
        super().__init__(detail)
        self.sandbox = sandbox


class CommandFailed(SandboxError):
    """A command that was to be checked did not exit with 0; `outcome` tells all of it."""

    def __init__(self, outcome: CommandOutcome) -> None:
        ending = (
            f"exited with {outcome.exit_code}"
            if outcome.exit_code is not None
            else f"is {outcome.state}: {outcome.state_reason}"
        )
        said = outcome.stderr.strip() or outcome.stdout.strip()
        super().__init__(f"The command {ending}: {outcome.cmd}\n{said[-2000:]}".rstrip())
        self.outcome = outcome


class StreamBroken(SandboxError, ConnectionError):
    """The connection broke while something was sent, which may not have arrived."""


class ApiError(SandboxError):
    """The server answered with a problem. Status and title of each code are in `models/error_codes.py`."""

    code: str = "unknown"
    status: int | None = None
    title: str = ""

    def __init_subclass__(cls) -> None:
        if (entry := ERROR_CODES.get(cls.code)) is not None:
            _, cls.status, cls.title = entry

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        title: str | None = None,
        status: int | None = None,
        remediation: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        errors: Sequence[InputProblem] = (),
    ) -> None:
        self.code = code or type(self).code
        self.title = title or type(self).title
        self.detail = detail
        self.status = status or type(self).status
        self.remediation = remediation
        self.request_id = request_id
        self.retry_after = retry_after
        self.errors = tuple(errors)
        super().__init__(" ".join(self._sentences()))

    def _sentences(self) -> Iterator[str]:
        yield self.detail
        for error in self.errors:
            yield f"{error.pointer or error.parameter}: {error.detail}"
        if self.remediation:
            yield self.remediation
        yield f"({self.code})"


class UnexpectedAnswer(ApiError):
    """Something else answers there than a sandbox server, such as a proxy in front of it."""

    code = "unexpected-answer"


class RequestFault(ApiError):
    """A request that the server could not take as one."""


class MalformedRequest(RequestFault):
    code = "malformed-request"


class RouteNotFound(RequestFault):
    code = "route-not-found"


class MethodNotAllowed(RequestFault):
    code = "method-not-allowed"


class HeadTooLarge(RequestFault):
    code = "head-too-large"


class BodyTooLarge(RequestFault):
    code = "body-too-large"


class UnsupportedMediaType(RequestFault):
    code = "unsupported-media-type"


class ValidationFailed(RequestFault):
    """`errors` tells what is wrong, and where."""

    code = "validation-failed"


class InternalError(ApiError):
    code = "internal-error"


class DatabaseUnavailable(ApiError):
    code = "database-unavailable"


class InvalidRequest(ApiError):
    code = "invalid-request"


class ControlNotUnderstood(InvalidRequest):
    code = "control-not-understood"


class NotFound(ApiError):
    code = "not-found"


class SandboxNotFound(NotFound):
    code = "sandbox-not-found"


class TenantNotFound(NotFound):
    code = "tenant-not-found"


class KeyNotFound(NotFound):
    code = "key-not-found"


class TemplateNotFound(NotFound):
    code = "template-not-found"


class BackendNotFound(NotFound):
    code = "backend-not-found"


class JobNotFound(NotFound):
    code = "job-not-found"


class PathNotFound(NotFound):
    code = "path-not-found"


class SnapshotNotFound(NotFound):
    code = "snapshot-not-found"


class CommandNotFound(NotFound):
    code = "command-not-found"


class TerminalNotFound(NotFound):
    code = "terminal-not-found"


class AgentRunNotFound(NotFound):
    code = "agent-run-not-found"


class Conflict(ApiError):
    code = "conflict"


class InvalidTransition(Conflict):
    code = "invalid-transition"


class SandboxPaused(Conflict):
    code = "sandbox-paused"


class IdempotencyMismatch(Conflict):
    code = "idempotency-mismatch"


class NameTaken(Conflict):
    code = "name-taken"


class TooManyTemplates(Conflict):
    code = "too-many-templates"


class KeyIssuedBefore(Conflict):
    code = "key-issued-before"


class Superseded(Conflict):
    code = "superseded"


class PathRefused(Conflict):
    code = "path-refused"


class CommandNotRunning(Conflict):
    code = "command-not-running"


class StdinClosed(Conflict):
    code = "stdin-closed"


class FileBusy(Conflict):
    code = "file-busy"


class DirectoryNotEmpty(Conflict):
    code = "directory-not-empty"


class AccessDenied(ApiError):
    code = "access-denied"


class Unauthenticated(AccessDenied):
    code = "unauthenticated"


class MetricsRefused(Unauthenticated):
    code = "metrics-refused"


class ScopeMissing(AccessDenied):
    code = "scope-missing"


class TicketRefused(AccessDenied):
    code = "ticket-refused"


class LoginRefused(AccessDenied):
    code = "login-refused"


class LimitReached(ApiError):
    code = "limit-reached"


class QueueFull(LimitReached):
    code = "queue-full"


class RateLimited(LimitReached):
    code = "rate-limited"


class TooManyAtOnce(LimitReached):
    code = "too-many-at-once"


class TooManyCommands(LimitReached):
    code = "too-many-commands"


class TooManyStreams(LimitReached):
    code = "too-many-streams"


class TooManyTickets(LimitReached):
    code = "too-many-tickets"


class FileChanged(ApiError):
    code = "file-changed"


class RangeOutside(ApiError):
    code = "range-outside"


class FileTooLarge(ApiError):
    code = "file-too-large"


class TooManyEntries(ApiError):
    code = "too-many-entries"


class TransferStalled(ApiError):
    code = "transfer-stalled"


class ArchiveFailed(ApiError):
    code = "archive-failed"


class DiskFull(ApiError):
    code = "disk-full"


class CommandNotStarted(ApiError):
    code = "command-not-started"


class CommandTimedOut(ApiError):
    code = "command-timed-out"


class StartFailed(ApiError):
    code = "start-failed"


class StartRefused(StartFailed):
    code = "start-refused"


class ResumeFailed(ApiError):
    code = "resume-failed"


class SandboxFailed(ApiError):
    code = "sandbox-failed"


class SnapshotFailed(ApiError):
    code = "snapshot-failed"


class ToolsNotRunning(ApiError):
    code = "tools-not-running"


class AgentsNotRunning(ApiError):
    code = "agent-server-not-running"


class ToolsRefused(ApiError):
    code = "tools-refused"


class PortNotOpen(ApiError):
    code = "port-not-open"


class PortBroken(ApiError):
    code = "port-broken"


class PortSilent(ApiError):
    code = "port-silent"


class NotPassedOn(ApiError):
    code = "not-passed-on"


class NoBackend(ApiError):
    code = "no-backend"


class NotReady(ApiError):
    code = "not-ready"


class BackendError(ApiError):
    code = "backend-error"


class BackendUnavailable(BackendError):
    code = "backend-unavailable"


class AnswerLost(BackendUnavailable):
    code = "answer-lost"


class BackendBusy(BackendError):
    code = "backend-busy"


class BackendRefused(BackendError):
    code = "backend-refused"


class CallNotSupported(BackendRefused):
    code = "call-not-supported"


class MetadataNotKept(BackendRefused):
    code = "metadata-not-kept"


class PauseConflict(BackendBusy):
    code = "pause-conflict"


class SandboxNotRunning(BackendError):
    code = "sandbox-not-running"


class SandboxGone(BackendError):
    code = "sandbox-gone"


class ProcessGone(BackendError):
    code = "process-gone"


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
