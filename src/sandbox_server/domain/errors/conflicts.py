from sandbox_server.domain.errors.kinds import Conflict


class InvalidTransition(Conflict):
    code = "invalid-transition"
    remediation = "Read the sandbox's state and reason; one that has ended cannot come back."

    def __init__(self, current: str, wanted: str) -> None:
        super().__init__(f"A {current} sandbox cannot become {wanted}.")


class SandboxPaused(Conflict):
    code = "sandbox-paused"
    remediation = "Resume it, or set its auto_resume."

    def __init__(self, sandbox_id: str, reason: str = "Using it does not resume it.") -> None:
        super().__init__(f"Sandbox {sandbox_id} is paused. {reason}")


class IdempotencyMismatch(Conflict):
    code = "idempotency-mismatch"
    remediation = "Use a new key for a new request; repeat a request with the same body."

    def __init__(self, key: str) -> None:
        super().__init__(f"The idempotency key {key!r} stands for a request with another body.")


class NameTaken(Conflict):
    code = "name-taken"

    def __init__(self, noun: str, name: str) -> None:
        super().__init__(f"There is a {noun} {name!r} already.")


class TooManyTemplates(Conflict):
    code = "too-many-templates"
    remediation = "Delete those that nobody uses any more."

    def __init__(self, most: int) -> None:
        super().__init__(f"There are {most} templates, and no tenant may have more.")


class KeyIssuedBefore(Conflict):
    code = "key-issued-before"
    remediation = (
        "If its secret is lost, revoke the key and make another with a new idempotency key."
    )

    def __init__(self, key_id: str) -> None:
        super().__init__(f"This request made the key {key_id!r}, and its secret is told only once.")


class Superseded(Conflict):
    """A result came too late: the row has gone on to another generation."""

    code = "superseded"
    remediation = "Read the sandbox and decide again."

    def __init__(self, sandbox_id: str, *, generation: int, now: int) -> None:
        super().__init__(
            f"Sandbox {sandbox_id} went on from generation {generation} to {now} in the meantime."
        )
