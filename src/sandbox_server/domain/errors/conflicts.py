from sandbox_server.domain.errors.kinds import Conflict


class BrowserSessionEnded(Conflict):
    code = "browser-session-ended"
    remediation = "Create another session."

    def __init__(self, session_id: str, reason: str | None) -> None:
        super().__init__(
            f"The browser session {session_id} has ended: {reason or 'no reason recorded.'}"
        )


class BrowserContextInUse(Conflict):
    code = "browser-context-in-use"
    remediation = "Wait for the end of that session, or use the context without `persist`."

    def __init__(self, context_id: str) -> None:
        super().__init__(f"Another session writes to the browser context {context_id!r}.")


class InvalidTransition(Conflict):
    code = "invalid-transition"
    remediation = (
        "Read the sandbox's state and state_reason. A sandbox that has ended cannot be resumed."
    )

    def __init__(self, current: str, wanted: str) -> None:
        super().__init__(f"A {current} sandbox cannot become {wanted}.")


class SandboxPaused(Conflict):
    code = "sandbox-paused"
    remediation = "Resume the sandbox, or set its auto_resume."

    def __init__(
        self,
        sandbox_id: str,
        reason: str = "Requests do not resume it, because auto_resume is off.",
    ) -> None:
        super().__init__(f"Sandbox {sandbox_id} is paused. {reason}")


class IdempotencyMismatch(Conflict):
    code = "idempotency-mismatch"
    remediation = (
        "Use a new idempotency key for a new request; repeat a request with the same body."
    )

    def __init__(self, key: str) -> None:
        super().__init__(f"The idempotency key {key!r} was used for a request with another body.")


class NameTaken(Conflict):
    code = "name-taken"

    def __init__(self, noun: str, name: str) -> None:
        super().__init__(f"A {noun} named {name!r} already exists.")


class RepositoryInUse(Conflict):
    code = "repository-in-use"
    remediation = "Cancel its tasks, or wait until they have ended."

    def __init__(self, full_name: str, *, tasks: int) -> None:
        super().__init__(f"The repository {full_name} has {tasks} open tasks.")


class TooManyTemplates(Conflict):
    code = "too-many-templates"
    remediation = "Delete templates that are no longer used."

    def __init__(self, most: int) -> None:
        super().__init__(f"The tenant has {most} templates, which is the limit.")


class KeyIssuedBefore(Conflict):
    code = "key-issued-before"
    remediation = (
        "If the secret is lost, revoke the key and create another with a new idempotency key."
    )

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"This request created the key {key_id!r} before. A secret is returned only once."
        )


class Superseded(Conflict):
    """A result came too late: another worker has changed the row since."""

    code = "superseded"
    remediation = "Read the sandbox and repeat the request if it is still needed."

    def __init__(self, sandbox_id: str, *, generation: int, now: int) -> None:
        super().__init__(
            f"Sandbox {sandbox_id} changed meanwhile (generation {generation} to {now})."
        )


class TaskExists(Conflict):
    """An issue has one open task at most."""

    code = "task-exists"
    remediation = "Send a message to that task, or cancel it first."

    def __init__(self, task_id: str, source: str) -> None:
        super().__init__(f"Task {task_id} is open for {source}.")


class InvalidStage(Conflict):
    code = "invalid-stage"
    remediation = "Read the task's stage, stage_reason and waits_for."

    def __init__(self, stage: str, action: str) -> None:
        super().__init__(f"A task in stage {stage} does not accept {action}.")
