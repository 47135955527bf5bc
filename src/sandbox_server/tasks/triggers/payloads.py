"""The few fields of payloads that no request to the forge would tell: which label was added, which comment, which branch.

GitHub and Forgejo send alike; GitLab differs. Every field may be missing or of another type.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Payload = Mapping[str, Any]

RECONCILED = "reconciled"
"""Marks what the server has found itself, described as a delivery."""

_FAILED = frozenset({"failure", "failed", "error", "timed_out"})
_CHECKS = ("check_run", "check_suite", "workflow_run", "workflow_job")


@dataclass(frozen=True)
class DeliveredComment:
    id: str
    body: str
    url: str | None
    is_on_pull: bool
    place: str | None = None
    """The file and line that a comment of a review is about."""

    @property
    def ref(self) -> str:
        return f"comment/{self.id}"

    @property
    def text(self) -> str:
        return self.body if self.place is None else f"On {self.place}:\n\n{self.body}"


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


def late_label_at(payload: Payload) -> datetime | None:
    """Return when a label was added that the server has found later; None for one that a webhook reports."""
    if at(payload, RECONCILED) is not True:
        return None
    text = text_at(payload, "issue", "updated_at")
    return None if text is None else datetime.fromisoformat(text)


def read_comment(payload: Payload) -> DeliveredComment | None:
    """Read the comment or review that was written; None for a delivery without one."""
    note = at(payload, "object_attributes")
    if isinstance(note, Mapping):
        return _comment(note, body="note", url="url", is_on_pull="merge_request" in payload)
    review = at(payload, "review")
    if isinstance(review, Mapping):
        return _comment(review, is_on_pull=True, prefix="review/")
    comment = at(payload, "comment")
    if "issue" not in payload and "pull_request" in payload:
        return _comment(comment, is_on_pull=True, prefix="line/")
    is_pull = at(payload, "issue", "pull_request") is not None or at(payload, "is_pull") is True
    return _comment(comment, is_on_pull=is_pull)


def _comment(
    document: object,
    *,
    is_on_pull: bool,
    body: str = "body",
    url: str = "html_url",
    prefix: str = "",
) -> DeliveredComment | None:
    comment_id, text = text_at(document, "id"), text_at(document, body)
    if comment_id is None or text is None:
        return None
    link = text_at(document, url)
    return DeliveredComment(f"{prefix}{comment_id}", text, link, is_on_pull, _place_of(document))


def _place_of(comment: object) -> str | None:
    path = text_at(comment, "path") or text_at(comment, "position", "new_path")
    line = text_at(comment, "line") or text_at(comment, "position", "new_line")
    return path if path is None or line is None else f"{path}, line {line}"


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
