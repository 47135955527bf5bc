from datetime import timedelta

from sandbox_server.domain.errors.kinds import Conflict, NotFound, SandboxError


class PathNotFound(NotFound):
    code = "path-not-found"
    noun = "file"
    remediation = (
        "Relative paths start in the template's WORKDIR, or in the user's home if it has none."
    )

    def __init__(self, path: str, *, reason: str | None = None) -> None:
        super().__init__(path)
        if reason is not None:
            self.args = (f"There is no {self.noun} {path!r}: {reason}.",)


class PathRefused(Conflict):
    code = "path-refused"
    remediation = "Check what exists at this path, and its permissions."

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"The sandbox refuses {path!r}: {reason}")


class FileTooLarge(SandboxError):
    code = "file-too-large"
    remediation = "Read a part of the file with a command, or download it with GET /v1/sandboxes/{id}/files/content."

    def __init__(self, path: str, *, limit: int) -> None:
        super().__init__(f"The file {path!r} has more than {limit} bytes.")


class DiskFull(SandboxError):
    code = "disk-full"
    remediation = "Delete files in the sandbox that are no longer needed."

    def __init__(self, path: str) -> None:
        super().__init__(f"The sandbox's disk is full: {path!r} was not written.")


class CommandTimedOut(SandboxError):
    code = "command-timed-out"
    remediation = "Use a longer timeout, or run the command in the background."

    def __init__(self, timeout: timedelta, *, output: str) -> None:
        super().__init__(
            f"The command was killed after {timeout.total_seconds():g} s. Its output ended with: {output}"
        )


class BrowserNotPrepared(SandboxError):
    code = "browser-not-prepared"
