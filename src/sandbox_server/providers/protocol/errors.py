"""How a sandbox provider fails those who ask it, beside the errors that callers of the API know.

BackendError
  BackendUnavailable   refused, too slow, cut off, or an error of the provider's own
    AnswerLost         the same for a change that was sent: whether it happened is unknown
  BackendBusy          no room or too many requests: later, after `retry_after` if it said so
    PauseConflict      it runs, and cannot be paused now
  BackendRefused       the request cannot be carried out as it stands, now or later
    CallNotSupported   the provider lacks this call of E2B's API
    MetadataNotKept    the provider drops the labels by which sandboxes are told apart
  SandboxNotRunning    the sandbox is paused, and the call needs a running one
  SandboxGone          the provider has no such sandbox any more
  ProcessGone          the sandbox has no such process, or has none any more

The texts are for people and carry no credentials.
"""

from sandbox_server.domain.errors import (
    BackendBusy,
    BackendError,
    BackendRefused,
    BackendUnavailable,
)


class AnswerLost(BackendUnavailable):
    """The change may have been made, or still be; ask what is true before going on."""

    code = "answer-lost"


class PauseConflict(BackendBusy):
    """Another transition is under way, or the provider cannot pause it at all."""

    code = "pause-conflict"


class CallNotSupported(BackendRefused):
    """The provider has no such route. This says nothing about the sandbox, which may exist."""

    code = "call-not-supported"
    remediation = "Upgrade the provider, or use one that has the call; see docs/providers.md."

    def __init__(self, backend: str, request: str, answer: str) -> None:
        super().__init__(
            backend,
            f"does not support `{request}` ({answer}); "
            "upgrade it or use another provider, see docs/providers.md",
        )


class MetadataNotKept(BackendRefused):
    """Without metadata, our sandboxes cannot be told from those of others."""

    code = "metadata-not-kept"
    remediation = "Use a provider that keeps metadata; see docs/providers.md."

    def __init__(self, backend: str, provider_id: str) -> None:
        super().__init__(
            backend,
            f"does not keep the metadata of sandboxes (none on {provider_id}), by which they are "
            "told from those of others; use another provider, see docs/providers.md",
        )


class SandboxNotRunning(BackendError):
    """Paused without our doing."""

    code = "sandbox-not-running"

    def __init__(self, backend: str, provider_id: str) -> None:
        super().__init__(backend, f"the sandbox {provider_id} is paused")


class SandboxGone(BackendError):
    """Killed, or never there."""

    code = "sandbox-gone"

    def __init__(self, backend: str, provider_id: str) -> None:
        super().__init__(backend, f"there is no sandbox {provider_id}")
        self.provider_id = provider_id


class ProcessGone(BackendError):
    """It has ended, or was never there."""

    code = "process-gone"
