from datetime import timedelta

from sandbox_server.domain.errors.kinds import SandboxError


class StartFailed(SandboxError):
    code = "start-failed"
    remediation = "The sandbox's state_reason and its events say what the provider answered."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The sandbox did not start: {reason}")


class StartRefused(StartFailed):
    code = "start-refused"
    remediation = "See what the provider says of it, as of a template that it does not have."


class ResumeFailed(SandboxError):
    code = "resume-failed"
    remediation = "It is still paused with its files; try again."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The sandbox did not resume and stays paused: {reason}")


class SandboxFailed(SandboxError):
    code = "sandbox-failed"
    remediation = "Create another one."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The sandbox has failed: {reason}")


class SnapshotFailed(SandboxError):
    code = "snapshot-failed"
    remediation = "The sandbox itself goes on; try again."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The snapshot was not taken: {reason}")


class NotReady(SandboxError):
    code = "not-ready"
    remediation = "Ask again; its place in the queue and its deadlines are kept."

    def __init__(self, state: str, *, retry_after: timedelta) -> None:
        super().__init__(f"The sandbox is {state} and not usable yet.")
        self.retry_after = retry_after
