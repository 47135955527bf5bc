"""Errors of sandbox providers, in addition to those of the API.

BackendError
  BackendUnavailable   refused, too slow, cut off, or an error of the provider's own
    AnswerLost         the same for a change that was sent: whether it happened is unknown
  BackendBusy          full or too many requests: retry, after `retry_after` if set
    PauseConflict      it runs, and cannot be paused now
  BackendRefused       the request cannot be carried out as it stands, now or later
    CallNotSupported   the provider lacks this call of E2B's API
    LacksCapability    the provider has sandboxes of one kind only, which lack what was requested
    MetadataNotKept    the provider drops the labels that identify sandboxes
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
    """The request may have had an effect, or may still have one; query the state first."""

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


class LacksCapability(BackendRefused):
    """Sandboxes of the provider do not have this, whatever their template."""

    code = "lacks-capability"
    remediation = "Create the sandbox at a backend that has the capability; see docs/providers.md."

    def __init__(self, backend: str, capability: str) -> None:
        super().__init__(
            backend, f"its sandboxes are browsers only, without the capability `{capability}`"
        )
        self.capability = capability


class MetadataNotKept(BackendRefused):
    """Without metadata our sandboxes cannot be identified."""

    code = "metadata-not-kept"
    remediation = "Use a provider that keeps metadata; see docs/providers.md."

    def __init__(self, backend: str, provider_id: str) -> None:
        super().__init__(
            backend,
            f"does not keep the metadata of sandboxes (none on {provider_id}), by which they are "
            "told from those of others; use another provider, see docs/providers.md",
        )


class SandboxNotRunning(BackendError):
    """The sandbox was paused outside of this server."""

    code = "sandbox-not-running"

    def __init__(self, backend: str, provider_id: str) -> None:
        super().__init__(backend, f"the sandbox {provider_id} is paused")


class SandboxGone(BackendError):
    """The sandbox was killed or never existed."""

    code = "sandbox-gone"

    def __init__(self, backend: str, provider_id: str) -> None:
        super().__init__(backend, f"there is no sandbox {provider_id}")
        self.provider_id = provider_id


class ProcessGone(BackendError):
    """The process has ended or never existed."""

    code = "process-gone"
