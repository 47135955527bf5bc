"""The few fields of payloads that no request to the forge would tell: which label was added, which comment, which branch.

GitHub and Forgejo send alike; GitLab differs. Every field may be missing or of another type.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Payload = Mapping[str, Any]

_FAILED = frozenset({"failure", "failed", "error", "timed_out"})
_CHECKS = ("check_run", "check_suite", "workflow_run", "workflow_job")


@dataclass(frozen=True)
class DeliveredComment:
    id: str
    body: str
    url: str | None
    is_on_pull: bool


def at(payload: object, *path: str) -> Any:
    """Return the value at a path; None where something is missing."""
    for name in path:
        if not isinstance(payload, Mapping):
            return None
        payload = payload.get(name)
    return payload


def text_at(payload: object, *path: str) -> str | None:
    value = at(payload, *path)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def added_labels(payload: Payload, action: str) -> set[str]:
    """List the labels that were added to an issue by this delivery."""
    if action == "labeled":
        one = text_at(payload, "label", "name")
        return {one} if one is not None else set()
    if action in {"label_updated", "opened"}:
        return set(_names(at(payload, "issue", "labels")))
    before = set(_names(at(payload, "changes", "labels", "previous")))
    return set(_names(at(payload, "changes", "labels", "current"))) - before


def read_comment(payload: Payload) -> DeliveredComment | None:
    """Read the comment that was written; None for one that was edited or deleted."""
    note = at(payload, "object_attributes")
    if isinstance(note, Mapping):
        comment_id, body = text_at(note, "id"), text_at(note, "note")
        url, is_on_pull = text_at(note, "url"), at(payload, "merge_request") is not None
    else:
        comment_id, body = text_at(payload, "comment", "id"), text_at(payload, "comment", "body")
        url = text_at(payload, "comment", "html_url")
        is_on_pull = (
            at(payload, "issue", "pull_request") is not None or at(payload, "is_pull") is True
        )
    if comment_id is None or body is None:
        return None
    return DeliveredComment(comment_id, body, url, is_on_pull)


def failed_branch(payload: Payload) -> str | None:
    """Return the branch whose checks have failed; None for a success, a fork, or checks that still run."""
    for name in _CHECKS:
        check = at(payload, name)
        if check is not None:
            return _branch_of(payload, check)
    if text_at(payload, "state") in _FAILED:  # a commit status
        branches = at(payload, "branches")
        first = branches[0] if isinstance(branches, list) and branches else None
        return text_at(first, "name")
    pipeline = at(payload, "object_attributes")
    if text_at(payload, "object_kind") == "pipeline" and text_at(pipeline, "status") in _FAILED:
        return None if at(payload, "merge_request") else text_at(pipeline, "ref")
    return None


def _branch_of(payload: Payload, check: object) -> str | None:
    if text_at(check, "conclusion") not in _FAILED:
        return None
    head = text_at(check, "head_repository", "id")
    if head is not None and head != text_at(payload, "repository", "id"):
        return None
    return text_at(check, "head_branch") or text_at(check, "check_suite", "head_branch")


def _names(labels: object) -> Iterator[str]:
    for label in labels if isinstance(labels, list) else ():
        name = text_at(label, "name") or text_at(label, "title")
        if name is not None:
            yield name
