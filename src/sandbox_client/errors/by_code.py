"""One exception for each code of `models/error_codes.py`, with the name and base of the server's class."""

from sandbox_client.errors.base import ApiError


class RequestFault(ApiError):
    """The HTTP request itself is invalid."""


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
    """`errors` lists each invalid value."""

    code = "validation-failed"


class InternalError(ApiError):
    code = "internal-error"


class DatabaseUnavailable(ApiError):
    code = "database-unavailable"


class InvalidRequest(ApiError):
    code = "invalid-request"


class ControlNotUnderstood(InvalidRequest):
    code = "control-not-understood"


class CodeRefused(InvalidRequest):
    code = "code-refused"


class ForgeHostNotAllowed(InvalidRequest):
    code = "forge-host-not-allowed"


class DesktopRefused(InvalidRequest):
    code = "desktop-refused"


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


class DeliveryNotFound(NotFound):
    code = "delivery-not-found"


class RepositoryNotFound(NotFound):
    code = "repository-not-found"


class JobNotFound(NotFound):
    code = "job-not-found"


class PathNotFound(NotFound):
    code = "path-not-found"


class SnapshotNotFound(NotFound):
    code = "snapshot-not-found"


class BrowserContextNotFound(NotFound):
    code = "browser-context-not-found"


class BrowserExtensionNotFound(NotFound):
    code = "browser-extension-not-found"


class BrowserRecordingNotFound(NotFound):
    code = "browser-recording-not-found"


class BrowserProjectNotFound(NotFound):
    code = "browser-project-not-found"


class BrowserbasePathNotFound(NotFound):
    code = "browserbase-path-not-found"


class BrowserSessionNotFound(NotFound):
    code = "browser-session-not-found"


class CommandNotFound(NotFound):
    code = "command-not-found"


class TerminalNotFound(NotFound):
    code = "terminal-not-found"


class AgentRunNotFound(NotFound):
    code = "agent-run-not-found"


class CodeExecutionNotFound(NotFound):
    code = "code-execution-not-found"


class CodeResultNotFound(NotFound):
    code = "code-result-not-found"


class CodeContextNotFound(NotFound):
    code = "code-context-not-found"


class ForgeNotFound(NotFound):
    code = "forge-not-found"


class TaskNotFound(NotFound):
    code = "task-not-found"


class PullNotFound(NotFound):
    code = "pull-request-not-found"


class AttemptNotFound(NotFound):
    code = "attempt-not-found"


class SaveNotFound(NotFound):
    code = "save-not-found"


class DesktopLinkNotFound(NotFound):
    code = "desktop-link-not-found"


class DesktopRecordingNotFound(NotFound):
    code = "desktop-recording-not-found"


class Conflict(ApiError):
    code = "conflict"


class BrowserSessionEnded(Conflict):
    code = "browser-session-ended"


class BrowserContextInUse(Conflict):
    code = "browser-context-in-use"


class ForgeInUse(Conflict):
    code = "forge-in-use"


class InvalidTransition(Conflict):
    code = "invalid-transition"


class SandboxPaused(Conflict):
    code = "sandbox-paused"


class IdempotencyMismatch(Conflict):
    code = "idempotency-mismatch"


class NameTaken(Conflict):
    code = "name-taken"


class RepositoryInUse(Conflict):
    code = "repository-in-use"


class TooManyTemplates(Conflict):
    code = "too-many-templates"


class TaskExists(Conflict):
    code = "task-exists"


class InvalidStage(Conflict):
    code = "invalid-stage"


class KeyIssuedBefore(Conflict):
    code = "key-issued-before"


class Superseded(Conflict):
    code = "superseded"


class PathRefused(Conflict):
    code = "path-refused"


class CommandNotRunning(Conflict):
    code = "command-not-running"


class InterpreterMissing(Conflict):
    code = "interpreter-missing"


class StdinClosed(Conflict):
    code = "stdin-closed"


class FileBusy(Conflict):
    code = "file-busy"


class DirectoryNotEmpty(Conflict):
    code = "directory-not-empty"


class AccessDenied(ApiError):
    code = "access-denied"


class SignatureRefused(AccessDenied):
    code = "signature-refused"


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


class InterpreterBusy(LimitReached):
    code = "interpreter-busy"


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


class BrowserNotRunning(ApiError):
    code = "browser-not-running"


class BrowserPathNotFound(NotFound):
    code = "browser-path-not-found"


class InterpreterUnreachable(ApiError):
    code = "interpreter-unreachable"


class ToolsRefused(ApiError):
    code = "tools-refused"


class PortNotOpen(ApiError):
    code = "port-not-open"


class PortBroken(ApiError):
    code = "port-broken"


class PortSilent(ApiError):
    code = "port-silent"


class BrowserNotPrepared(ApiError):
    code = "browser-not-prepared"


class FeatureUnavailable(ApiError):
    code = "feature-unavailable"


class NotPassedOn(ApiError):
    code = "not-passed-on"


class NoBackend(ApiError):
    code = "no-backend"


class NotReady(ApiError):
    code = "not-ready"


class ForgeError(ApiError):
    """A request of the server to GitHub, GitLab or another forge failed."""

    code = "forge-error"


class ForgeUnavailable(ForgeError):
    code = "forge-unavailable"


class ForgeLimited(ForgeError):
    code = "forge-limited"


class ForgeCredentialRefused(ForgeError):
    code = "forge-credential-refused"


class ForgePermissionMissing(ForgeError):
    code = "forge-permission-missing"


class ForgeResourceNotFound(ForgeError):
    code = "forge-resource-not-found"


class ForgeRefused(ForgeError):
    code = "forge-refused"


class PullExists(ForgeRefused):
    code = "pull-request-exists"


class NotSupportedByForge(ForgeError):
    code = "not-supported-by-forge"


class GitError(ApiError):
    code = "git-error"


class GitUnavailable(ApiError):
    code = "git-unavailable"


class GitTimedOut(GitError):
    code = "git-timed-out"


class RemoteUnreachable(GitError):
    code = "remote-unreachable"


class RemoteRefused(GitError):
    code = "remote-refused"


class RepositoryTooLarge(ApiError):
    code = "repository-too-large"


class CommitNotFound(NotFound):
    code = "commit-not-found"


class CheckoutFailed(ApiError):
    code = "checkout-failed"


class CheckoutRefused(Conflict):
    code = "checkout-refused"


class DesktopNotRunning(Conflict):
    code = "desktop-not-running"


class DesktopControlled(Conflict):
    code = "desktop-controlled"


class DesktopNotStreamed(Conflict):
    code = "desktop-not-streamed"


class SaveFailed(ApiError):
    code = "save-failed"


class SaveTooLarge(ApiError):
    code = "save-too-large"


class BundleRefused(ApiError):
    code = "bundle-refused"


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


class LacksCapability(BackendRefused):
    code = "lacks-capability"


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
