from datetime import timedelta

from sandbox_server.domain.errors.kinds import Conflict, NotFound, SandboxError


class PathNotFound(NotFound):
    code = "path-not-found"
    noun = "file"
    remediation = (
        "A relative path is in the working directory: the template's WORKDIR, else the user's home."
    )

    def __init__(self, path: str, *, reason: str | None = None) -> None:
        super().__init__(path)
        if reason is not None:
            self.args = (f"There is no {self.noun} {path!r}: {reason}.",)


class PathRefused(Conflict):
    code = "path-refused"
    remediation = "Look at what is there, and whether the sandbox's user may use it."

    def __init__(self, path: str, said: str) -> None:
        super().__init__(f"The sandbox refuses {path!r}: {said}")


class FileTooLarge(SandboxError):
    code = "file-too-large"
    remediation = "Read a part of it by a command, or have a command upload it."

    def __init__(self, path: str, *, limit: int) -> None:
        super().__init__(f"The file {path!r} has more than {limit} bytes.")


class DiskFull(SandboxError):
    code = "disk-full"
    remediation = "Delete what the sandbox no longer needs."

    def __init__(self, path: str) -> None:
        super().__init__(f"There is no room for {path!r} on the sandbox's disk.")


class CommandTimedOut(SandboxError):
    code = "command-timed-out"
    remediation = "Give it more time, or run it in the background."

    def __init__(self, timeout: timedelta, *, output: str) -> None:
        super().__init__(
            f"The command was killed after {timeout.total_seconds():g} s. Its output ended with: {output}"
        )
