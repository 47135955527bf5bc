"""What can go wrong in the server.

SandboxError
  InvalidRequest              what was asked cannot be carried out as it stands
  NotFound
    SandboxNotFound  TenantNotFound  KeyNotFound  TemplateNotFound  BackendNotFound  JobNotFound
    PathNotFound              no such file in the sandbox
    SnapshotNotFound
  Conflict
    InvalidTransition         a stopped sandbox cannot be resumed
    SandboxPaused             using it does not wake it
    IdempotencyMismatch       the key stands for another request
    NameTaken
    TooManyTemplates
    KeyIssuedBefore           its secret was told then
    Superseded                another worker went on with the sandbox in the meantime
    PathRefused               there is something else at that path, or it may not be touched
  AccessDenied
    Unauthenticated           no key, or none that is known
      MetricsRefused          not from this machine, or without the token
    ScopeMissing              the key may not do this
  LimitReached
    QueueFull
    RateLimited               a key asks too often
    TooManyAtOnce             a tenant does not wait for its answers
  FileTooLarge              too large to be told in one answer
  DiskFull                  the sandbox's own disk has no room for it
  CommandTimedOut           the command was killed when its time was up
  StartFailed                 the provider would not start it
  ResumeFailed                it is still there, paused
  SandboxFailed               it is gone, and nobody asked for that
  SnapshotFailed              the provider would not copy the sandbox
  NoBackend                   there is none that could have a sandbox
  NotReady                    the caller's wait is over, the sandbox is still on its way
  BackendError
    BackendUnavailable        it does not answer
    BackendBusy               it has no room or wants fewer calls: backpressure
    BackendRefused            it answered, and said no
    and, for the lifecycle to act on, those of backends/errors.py

Each class has a stable `code` and a `title`; only `api/` knows which status of HTTP it becomes.
"""

from datetime import timedelta
from typing import ClassVar


class SandboxError(Exception):
    """A failure with a text for the caller."""

    code: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Something went wrong"
    remediation: ClassVar[str | None] = None
    retry_after: timedelta | None = None


class InvalidRequest(SandboxError):
    code = "invalid-request"
    title = "Request cannot be carried out"


class NotFound(SandboxError):
    """Nothing has this name, or it is another tenant's, which is not told apart."""

    code = "not-found"
    title = "Not found"
    noun: ClassVar[str] = "thing"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no {self.noun} {name!r}.")


class SandboxNotFound(NotFound):
    code = "sandbox-not-found"
    title = "Sandbox not found"
    noun = "sandbox"
    remediation = (
        "Sandboxes that ended are removed after a while; another tenant's are not told apart."
    )


class TenantNotFound(NotFound):
    code = "tenant-not-found"
    title = "Tenant not found"
    noun = "tenant"


class KeyNotFound(NotFound):
    code = "key-not-found"
    title = "API key not found"
    noun = "API key"


class TemplateNotFound(NotFound):
    code = "template-not-found"
    title = "Template not found"
    noun = "template"
    remediation = "List the templates, or build one of this name."


class BackendNotFound(NotFound):
    code = "backend-not-found"
    title = "Backend not found"
    noun = "backend"
    remediation = "List the backends, or leave the backend out to have one chosen."


class JobNotFound(NotFound):
    code = "job-not-found"
    title = "Job not found"
    noun = "job"


class SnapshotNotFound(NotFound):
    code = "snapshot-not-found"
    title = "Snapshot not found"
    noun = "snapshot"


class PathNotFound(NotFound):
    code = "path-not-found"
    title = "Path not found in the sandbox"
    noun = "file"
    remediation = (
        "Paths are the sandbox's own; one that begins with no slash is in the user's home."
    )


class Conflict(SandboxError):
    code = "conflict"
    title = "Conflict"


class InvalidTransition(Conflict):
    code = "invalid-transition"
    title = "Sandbox is in the wrong state"
    remediation = "Read the sandbox's state and reason; one that has ended cannot come back."

    def __init__(self, current: str, wanted: str) -> None:
        super().__init__(f"A {current} sandbox cannot become {wanted}.")


class SandboxPaused(Conflict):
    code = "sandbox-paused"
    title = "Sandbox is paused"
    remediation = "Resume it, or set its auto_resume."

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(f"Sandbox {sandbox_id} is paused, and using it does not resume it.")


class IdempotencyMismatch(Conflict):
    code = "idempotency-mismatch"
    title = "Idempotency key was used for another request"
    remediation = "Use a new key for a new request; repeat a request with the same body."

    def __init__(self, key: str) -> None:
        super().__init__(f"The idempotency key {key!r} stands for a request with another body.")


class NameTaken(Conflict):
    code = "name-taken"
    title = "Name is taken"

    def __init__(self, noun: str, name: str) -> None:
        super().__init__(f"There is a {noun} {name!r} already.")


class TooManyTemplates(Conflict):
    code = "too-many-templates"
    title = "Tenant has as many templates as it may have"
    remediation = "Delete those that nobody uses any more."

    def __init__(self, most: int) -> None:
        super().__init__(f"There are {most} templates, and no tenant may have more.")


class KeyIssuedBefore(Conflict):
    code = "key-issued-before"
    title = "API key was made before"
    remediation = (
        "If its secret is lost, revoke the key and make another with a new idempotency key."
    )

    def __init__(self, key_id: str) -> None:
        super().__init__(f"This request made the key {key_id!r}, and its secret is told only once.")


class Superseded(Conflict):
    """A result came too late: the row has gone on to another generation."""

    code = "superseded"
    title = "Sandbox changed in the meantime"
    remediation = "Read the sandbox and decide again."

    def __init__(self, sandbox_id: str, *, generation: int, now: int) -> None:
        super().__init__(
            f"Sandbox {sandbox_id} went on from generation {generation} to {now} in the meantime."
        )


class PathRefused(Conflict):
    code = "path-refused"
    title = "Path cannot be used so"
    remediation = "Look at what is there, and whether the sandbox's user may use it."

    def __init__(self, path: str, said: str) -> None:
        super().__init__(f"The sandbox refuses {path!r}: {said}")


class AccessDenied(SandboxError):
    code = "access-denied"
    title = "Access denied"


class Unauthenticated(AccessDenied):
    code = "unauthenticated"
    title = "No valid API key"
    remediation = "Send a key as `Authorization: Bearer` or `X-API-Key`."

    def __init__(self, detail: str = "The request carries no API key that is known here.") -> None:
        super().__init__(detail)


class MetricsRefused(Unauthenticated):
    code = "metrics-refused"
    title = "Metrics are not for everybody"
    remediation = "Ask from the server's own machine, or set a metrics token and send it as `Authorization: Bearer`."

    def __init__(self) -> None:
        super().__init__("The request has no metrics token, and does not come from this machine.")


class ScopeMissing(AccessDenied):
    code = "scope-missing"
    title = "API key may not do this"

    def __init__(self, scope: str) -> None:
        super().__init__(f"The API key lacks the scope {scope!r}.")


class LimitReached(SandboxError):
    code = "limit-reached"
    title = "Limit reached"

    def __init__(self, detail: str, *, retry_after: timedelta) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class QueueFull(LimitReached):
    code = "queue-full"
    title = "Queue is full"
    remediation = "Try again later, or delete sandboxes that are no longer needed."

    def __init__(self, *, limit: int, retry_after: timedelta) -> None:
        super().__init__(f"All {limit} places in the queue are taken.", retry_after=retry_after)


class RateLimited(LimitReached):
    code = "rate-limited"
    title = "Too many requests"
    remediation = "Wait for as long as Retry-After says."

    def __init__(self, *, per_second: float, retry_after: timedelta) -> None:
        super().__init__(
            f"This API key may make {per_second:g} requests per second.", retry_after=retry_after
        )


class TooManyAtOnce(LimitReached):
    code = "too-many-at-once"
    title = "Too many requests at once"
    remediation = "Wait for answers before asking for more."

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"Your tenant has {limit} requests under way at this server, as many as it may.",
            retry_after=timedelta(seconds=1),
        )


class FileTooLarge(SandboxError):
    code = "file-too-large"
    title = "File is too large for one answer"
    remediation = "Read a part of it by a command, or have a command upload it."

    def __init__(self, path: str, *, limit: int) -> None:
        super().__init__(f"The file {path!r} has more than {limit} bytes.")


class DiskFull(SandboxError):
    code = "disk-full"
    title = "Sandbox's disk is full"
    remediation = "Delete what the sandbox no longer needs."

    def __init__(self, path: str) -> None:
        super().__init__(f"There is no room for {path!r} on the sandbox's disk.")


class CommandTimedOut(SandboxError):
    code = "command-timed-out"
    title = "Command took too long"
    remediation = "Give it more time, or run it in the background."

    def __init__(self, timeout: timedelta, *, output: str) -> None:
        super().__init__(
            f"The command was killed after {timeout.total_seconds():g} s. Its output ended with: {output}"
        )


class StartFailed(SandboxError):
    code = "start-failed"
    title = "Sandbox did not start"
    remediation = "The sandbox's state_reason and its events say what the provider answered."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The sandbox did not start: {reason}")


class ResumeFailed(SandboxError):
    code = "resume-failed"
    title = "Sandbox did not resume"
    remediation = "It is still paused with its files; try again."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The sandbox did not resume and stays paused: {reason}")


class SandboxFailed(SandboxError):
    code = "sandbox-failed"
    title = "Sandbox has failed"
    remediation = "Create another one."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The sandbox has failed: {reason}")


class SnapshotFailed(SandboxError):
    code = "snapshot-failed"
    title = "Snapshot was not taken"
    remediation = "The sandbox itself goes on; try again."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The snapshot was not taken: {reason}")


class NoBackend(SandboxError):
    code = "no-backend"
    title = "No backend is configured"
    remediation = "The server's settings have to name a provider; /readyz says when one is known."

    def __init__(self) -> None:
        super().__init__("The server knows no provider of sandboxes.")


class NotReady(SandboxError):
    code = "not-ready"
    title = "Sandbox is not ready yet"
    remediation = "Ask again; its place in the queue and its deadlines are kept."

    def __init__(self, state: str, *, retry_after: timedelta) -> None:
        super().__init__(f"The sandbox is {state} and not usable yet.")
        self.retry_after = retry_after


class BackendError(SandboxError):
    """A provider of sandboxes did not do what it was asked."""

    code = "backend-error"
    title = "Sandbox provider failed"

    def __init__(self, backend: str, reason: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(f"Backend {backend!r}: {reason}")
        self.backend = backend
        self.reason = reason
        self.retry_after = retry_after


class BackendUnavailable(BackendError):
    code = "backend-unavailable"
    title = "Sandbox provider does not answer"
    remediation = "Try again; what was asked of existing sandboxes is carried out once it answers."


class BackendBusy(BackendError):
    code = "backend-busy"
    title = "Sandbox provider is at its limit"


class BackendRefused(BackendError):
    code = "backend-refused"
    title = "Sandbox provider refused"
