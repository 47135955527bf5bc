"""The paths of the git endpoint: /git/{host}/{owner}/{repository}[.git]/{service}."""

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

PREFIX = "/git/"


class GitService(StrEnum):
    REFS = "info/refs"
    UPLOAD_PACK = "git-upload-pack"
    RECEIVE_PACK = "git-receive-pack"
    LFS_BATCH = "info/lfs/objects/batch"
    LFS_LOCKS = "info/lfs/locks"
    LFS_OBJECT = "info/lfs/objects"

    @property
    def is_lfs(self) -> bool:
        return self.startswith("info/lfs/")


_SERVICES = re.compile(
    r"(?P<address>[^/]+(?:/[^/]+)+?)/"
    r"(?P<service>info/refs|git-upload-pack|git-receive-pack|info/lfs/objects/batch"
    r"|info/lfs/objects/(?P<oid>[0-9a-f]{64})|info/lfs/locks(?:/.*)?)"
)


@dataclass(frozen=True, kw_only=True)
class GitTarget:
    """The target of a path of the endpoint."""

    address: str
    service: GitService
    oid: str | None = None
    """The id of a large file."""


def parse_target(path: str) -> GitTarget | None:
    """Parse a path below /git/; None if nothing is there."""
    found = _SERVICES.fullmatch(path.removeprefix(PREFIX))
    if found is None:
        return None
    service = found["service"]
    if found["oid"] is not None:
        kind = GitService.LFS_OBJECT
    elif service.startswith(GitService.LFS_LOCKS):
        kind = GitService.LFS_LOCKS
    else:
        kind = GitService(service)
    return GitTarget(address=_normal(found["address"]), service=kind, oid=found["oid"])


def address_of(url: str) -> str:
    """Return the part of a repository's URL that names it below /git/: host and path."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return _normal(f"{host}{parts.path.rstrip('/')}")


def _normal(address: str) -> str:
    """Forges do not distinguish case."""
    return address.removesuffix(".git").lower()
