from datetime import timedelta

from sandbox_server.domain.errors.kinds import Conflict, NotFound, SandboxError
from sandbox_server.domain.errors.storable_text import storable


class GitError(SandboxError):
    """Git failed; the text ends with its last words, without secrets."""

    code = "git-error"

    def __init__(self, doing: str, said: str) -> None:
        self.said = storable(said.strip())
        super().__init__(f"`git {doing}` failed: {self.said or 'it said nothing'}")


class GitUnavailable(SandboxError):
    code = "git-unavailable"
    remediation = "Install git on the server; `sandbox-server doctor` checks it."

    def __init__(self) -> None:
        super().__init__("The server has no git.")


class GitTimedOut(GitError):
    code = "git-timed-out"
    remediation = "Try again. Larger repositories need a faster connection to their forge."

    def __init__(self, doing: str, timeout: timedelta) -> None:
        super().__init__(doing, f"it was stopped after {timeout.total_seconds():g} s")


class RemoteUnreachable(GitError):
    """The git server did not answer, or answered with an error of its own."""

    code = "remote-unreachable"
    remediation = "Try again when the git server answers."

    def __init__(self, doing: str, said: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(doing, said)
        self.retry_after = retry_after


class RemoteRefused(GitError):
    """The git server does not accept the credential, or shows no repository to it."""

    code = "remote-refused"
    remediation = (
        "Check the credential of the forge and its permissions for this repository; "
        "POST /v1/forges/{name}/check reports them."
    )


class RepositoryTooLarge(SandboxError):
    code = "repository-too-large"
    remediation = "Raise --mirror-gb, or make the repository smaller."

    def __init__(self, name: str, *, limit: int) -> None:
        super().__init__(f"The repository {name} has more than {limit >> 20} MiB.")


class CommitNotFound(NotFound):
    code = "commit-not-found"
    noun = "commit or branch"
    remediation = "Check the name of the branch, and that the commit was pushed."


class CheckoutFailed(SandboxError):
    code = "checkout-failed"
    remediation = "Check that the template has git and that the sandbox's disk has room."

    def __init__(self, directory: str, said: str) -> None:
        super().__init__(f"The repository was not checked out to {directory!r}: {storable(said)}")


class CheckoutRefused(Conflict):
    code = "checkout-refused"
    remediation = "Use an empty or new directory."

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(f"Nothing was checked out to {directory!r}: {reason}.")


class SaveFailed(SandboxError):
    code = "save-failed"
    remediation = "The work is still in the sandbox. Try again, and keep the sandbox until then."

    def __init__(self, said: str) -> None:
        super().__init__(f"The work was not saved: {storable(said)}")


class SaveTooLarge(SandboxError):
    code = "save-too-large"
    remediation = "Add large files to .gitignore, or remove them from the commits."

    def __init__(self, size: int, *, limit: int, largest: list[str]) -> None:
        named = f" The largest files: {', '.join(map(storable, largest))}." if largest else ""
        super().__init__(
            f"The work was not saved: it has {size >> 20} MiB, more than {limit >> 20} MiB.{named}"
        )


class BundleRefused(SandboxError):
    code = "bundle-refused"
    remediation = "Take the save again."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The bundle is not valid: {storable(reason)}")
