from datetime import timedelta

from sandbox_server.domain.errors.kinds import SandboxError


class StartFailed(SandboxError):
    code = "start-failed"
    remediation = "Read the sandbox's state_reason and events for the provider's answer."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The sandbox did not start: {reason}")


class StartRefused(StartFailed):
    code = "start-refused"
    remediation = "Read the provider's message; for example, the template may not exist there."


class ResumeFailed(SandboxError):
    code = "resume-failed"
    remediation = "The sandbox is still paused and keeps its files. Try again."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The sandbox did not resume and stays paused: {reason}")


class SandboxFailed(SandboxError):
    code = "sandbox-failed"
    remediation = "Create another sandbox."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The sandbox has failed: {reason}")


class SnapshotFailed(SandboxError):
    code = "snapshot-failed"
    remediation = "The sandbox itself keeps running. Try again."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The snapshot was not taken: {reason}")


class NotReady(SandboxError):
    code = "not-ready"
    remediation = "Repeat the request. The sandbox keeps its place in the queue and its deadlines."

    def __init__(self, state: str, *, retry_after: timedelta) -> None:
        super().__init__(f"The sandbox is {state} and cannot be used yet.")
        self.retry_after = retry_after
