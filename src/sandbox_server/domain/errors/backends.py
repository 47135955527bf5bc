from datetime import timedelta

from sandbox_server.domain.errors.kinds import SandboxError
from sandbox_server.domain.texts import storable


class NoBackend(SandboxError):
    code = "no-backend"
    remediation = "The server's settings have to name a provider; /readyz says when one is known."

    def __init__(self) -> None:
        super().__init__("The server knows no provider of sandboxes.")


class BackendError(SandboxError):
    """A provider of sandboxes did not do what it was asked."""

    code = "backend-error"

    def __init__(self, backend: str, reason: str, *, retry_after: timedelta | None = None) -> None:
        said = storable(reason)
        super().__init__(f"Backend {backend!r}: {said}")
        self.backend = backend
        self.reason = said
        self.retry_after = retry_after


class BackendUnavailable(BackendError):
    code = "backend-unavailable"
    remediation = "Try again; what was asked of existing sandboxes is carried out once it answers."


class BackendBusy(BackendError):
    code = "backend-busy"


class BackendRefused(BackendError):
    code = "backend-refused"
