"""The permissions that the server needs at GitHub, and how to find out what a credential lacks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sandbox_server.domain.tasks.forges import GitAccess, MissingPermission

API = "api"
"""The purpose of tokens for the REST API."""
CONTENTS = "contents"
"""The purpose of tokens that comment on commits."""
RERUN = "rerun"
"""The purpose of tokens that rerun failed jobs."""
READY = "ready"
"""The purpose of tokens that change drafts, for which GitHub wants write access to the contents."""

_RANKS = {"read": 1, "write": 2, "admin": 3}


@dataclass(frozen=True, kw_only=True)
class NeededPermission:
    name: str
    access: str
    needed_for: str
    is_required: bool = True

    def missing(self, account: str | None = None) -> MissingPermission:
        return MissingPermission(
            name=self.name,
            access=self.access,
            needed_for=self.needed_for,
            account=account,
            is_required=self.is_required,
        )


METADATA = NeededPermission(name="metadata", access="read", needed_for="find repositories")
READ_CODE = NeededPermission(name="contents", access="read", needed_for="clone the repository")
PUSH = NeededPermission(name="contents", access="write", needed_for="push branches")
PULLS = NeededPermission(
    name="pull_requests", access="write", needed_for="open and update pull requests"
)
ISSUES = NeededPermission(
    name="issues", access="write", needed_for="read issues, comment and label"
)
CHECKS = NeededPermission(name="checks", access="read", needed_for="follow CI", is_required=False)
ACTIONS = NeededPermission(
    name="actions", access="read", needed_for="read logs of failed CI jobs", is_required=False
)
RERUNS = NeededPermission(
    name="actions", access="write", needed_for="rerun flaky CI jobs once", is_required=False
)
STATUSES = NeededPermission(
    name="statuses", access="read", needed_for="follow commit statuses", is_required=False
)
WORKFLOWS = NeededPermission(
    name="workflows",
    access="write",
    needed_for="publish approved changes of CI workflows",
    is_required=False,
)

NEEDED = (METADATA, PUSH, PULLS, ISSUES, CHECKS, ACTIONS, RERUNS, STATUSES, WORKFLOWS)
"""All of them, as `…/check` reports them."""

PERMISSIONS_OF: Mapping[str, tuple[NeededPermission, ...]] = {
    GitAccess.READ: (METADATA, READ_CODE),
    GitAccess.WRITE: (METADATA, PUSH),
    GitAccess.WORKFLOWS: (
        METADATA,
        PUSH,
        NeededPermission(
            name="workflows", access="write", needed_for="push changes of CI workflows"
        ),
    ),
    API: (METADATA, PULLS, ISSUES, CHECKS, ACTIONS, STATUSES),
    READY: (METADATA, PULLS, PUSH),
    CONTENTS: (METADATA, PUSH),
    RERUN: (METADATA, replace(RERUNS, is_required=True)),
}
"""The least permissions for each purpose of a minted token."""


def is_granted(permissions: Mapping[str, str], needed: NeededPermission) -> bool:
    held = _RANKS.get(permissions.get(needed.name, ""), 0)
    return held >= _RANKS[needed.access]


def find_missing(
    permissions: Mapping[str, str], *, account: str | None = None
) -> list[MissingPermission]:
    """Compare the permissions of an installation with those that the server needs."""
    return [needed.missing(account) for needed in NEEDED if not is_granted(permissions, needed)]
