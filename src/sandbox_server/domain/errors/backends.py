from datetime import timedelta

from sandbox_server.domain.errors.kinds import SandboxError
from sandbox_server.domain.errors.storable_text import storable


class NoBackend(SandboxError):
    code = "no-backend"
    remediation = (
        "Configure a backend in the server's settings. /readyz reports whether one is configured."
    )

    def __init__(self) -> None:
        super().__init__("No backend is configured.")


class BackendError(SandboxError):
    """A request to a provider of sandboxes failed."""

    code = "backend-error"

    def __init__(self, backend: str, reason: str, *, retry_after: timedelta | None = None) -> None:
        text = storable(reason)
        super().__init__(f"Backend {backend!r}: {text}")
        self.backend = backend
        self.reason = text
        self.retry_after = retry_after


class BackendUnavailable(BackendError):
    code = "backend-unavailable"
    remediation = "Try again. Changes of existing sandboxes are carried out as soon as the backend is available."


class BackendBusy(BackendError):
    code = "backend-busy"
    remediation = "Try again later; Retry-After says when, if the provider named a time."


class BackendRefused(BackendError):
    code = "backend-refused"
    remediation = "Read the provider's message and change the request."
