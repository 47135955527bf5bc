from datetime import timedelta

from sandbox_server.domain.errors.kinds import Conflict, SandboxError


class FileChanged(SandboxError):
    code = "file-changed"
    remediation = "Read the file again and send its current ETag."

    def __init__(self, path: str, *, etag: str | None) -> None:
        super().__init__(
            f"The file {path!r} does not exist."
            if etag is None
            else f"The file {path!r} has changed: its ETag is {etag}."
        )
        self.etag = etag


class RangeOutside(SandboxError):
    code = "range-outside"

    def __init__(self, path: str, *, size: int) -> None:
        super().__init__(f"The range is outside the file {path!r}, which has {size} bytes.")
        self.size = size


class FileBusy(Conflict):
    code = "file-busy"
    remediation = "Try again."

    def __init__(self, path: str) -> None:
        super().__init__(f"Other requests kept replacing {path!r}.")


class DirectoryNotEmpty(Conflict):
    code = "directory-not-empty"
    remediation = "Use `recursive=true` to delete a directory with its content."

    def __init__(self, path: str) -> None:
        super().__init__(f"The directory {path!r} is not empty.")


class TooManyEntries(SandboxError):
    code = "too-many-entries"
    remediation = "List a subdirectory, or fewer levels."

    def __init__(self, path: str) -> None:
        super().__init__(f"The directory {path!r} has too many entries for one listing.")


class TransferStalled(SandboxError):
    code = "transfer-stalled"
    remediation = "Repeat the upload."

    def __init__(self, limit: timedelta) -> None:
        super().__init__(f"No data was received for {limit.total_seconds():g} s.")


class ArchiveFailed(SandboxError):
    code = "archive-failed"
    remediation = "Read the message. A part of the archive may have been unpacked."

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"In {path!r}: {reason}")
