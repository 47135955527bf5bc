"""How a sandbox provider fails those who ask it, beside the errors that callers of the API know.

BackendError
  BackendUnavailable   refused, too slow, cut off, or an error of the provider's own
    AnswerLost         the same for a change that was sent: whether it happened is unknown
  BackendBusy          no room or too many requests: later, after `retry_after` if it said so
  BackendRefused       the request cannot be carried out as it stands, now or later
  SandboxGone          the provider has no such sandbox any more
  ProcessGone          the sandbox has no such process, or has none any more

The texts are for people and carry no credentials.
"""

from sandbox_server.domain.errors import BackendError, BackendUnavailable


class AnswerLost(BackendUnavailable):
    """The change may have been made, or still be; ask what is true before going on."""

    code = "answer-lost"
    title = "Sandbox provider's answer was lost"


class SandboxGone(BackendError):
    """Killed, or never there."""

    code = "sandbox-gone"
    title = "Sandbox is gone from its provider"

    def __init__(self, backend: str, provider_id: str) -> None:
        super().__init__(backend, f"there is no sandbox {provider_id}")
        self.provider_id = provider_id


class ProcessGone(BackendError):
    """It has ended, or was never there."""

    code = "process-gone"
    title = "Process is gone from its sandbox"
