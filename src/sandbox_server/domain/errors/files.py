from datetime import timedelta

from sandbox_server.domain.errors.kinds import Conflict, SandboxError


class FileChanged(SandboxError):
    code = "file-changed"
    remediation = "Read it again, and send the ETag that it has now."

    def __init__(self, path: str, *, etag: str | None) -> None:
        super().__init__(
            f"There is no file {path!r}."
            if etag is None
            else f"The file {path!r} has the ETag {etag}."
        )
        self.etag = etag


class RangeOutside(SandboxError):
    code = "range-outside"

    def __init__(self, path: str, *, size: int) -> None:
        super().__init__(f"The file {path!r} has {size} bytes.")
        self.size = size


class FileBusy(Conflict):
    code = "file-busy"
    remediation = "Try again."

    def __init__(self, path: str) -> None:
        super().__init__(f"Others have been replacing {path!r} all the time.")


class DirectoryNotEmpty(Conflict):
    code = "directory-not-empty"
    remediation = "Ask with `recursive=true` to delete all that is in it."

    def __init__(self, path: str) -> None:
        super().__init__(f"The directory {path!r} is not empty.")


class TooManyEntries(SandboxError):
    code = "too-many-entries"
    remediation = "List a directory further down, or fewer levels."

    def __init__(self, path: str) -> None:
        super().__init__(f"There is more below {path!r} than one listing may hold.")


class TransferStalled(SandboxError):
    code = "transfer-stalled"
    remediation = "Send it again."

    def __init__(self, limit: timedelta) -> None:
        super().__init__(f"Nothing was received for {limit.total_seconds():g} s.")


class ArchiveFailed(SandboxError):
    code = "archive-failed"
    remediation = "See what is said of it; some of an archive may have been unpacked."

    def __init__(self, path: str, said: str) -> None:
        super().__init__(f"In {path!r}: {said}")
