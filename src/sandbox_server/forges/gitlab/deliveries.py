"""Webhook deliveries of GitLab, which bear the secret itself instead of a signature."""

from collections.abc import Mapping
from typing import Any

from sandbox_server.domain.tasks.forges import Delivery, DeliveryKind
from sandbox_server.forges.connection.deliveries import (
    lower_names,
    read_document,
    require_header,
    require_token,
    text_at,
)

_PUSH = (DeliveryKind.PUSH, ("ref",))
_EVENTS: Mapping[str, tuple[DeliveryKind, tuple[str, ...]]] = {
    "issue": (DeliveryKind.ISSUE, ("object_attributes", "iid")),
    "work_item": (DeliveryKind.ISSUE, ("object_attributes", "iid")),
    "merge_request": (DeliveryKind.PULL, ("object_attributes", "iid")),
    "pipeline": (DeliveryKind.CHECK, ("object_attributes", "sha")),
    "build": (DeliveryKind.CHECK, ("sha",)),
    "push": _PUSH,
    "tag_push": _PUSH,
}
_OTHER: tuple[DeliveryKind, tuple[str, ...]] = (DeliveryKind.OTHER, ())


def read_delivery(headers: Mapping[str, str], body: bytes, secret: bytes) -> Delivery:
    """Compare `X-Gitlab-Token` and read the delivery."""
    given = lower_names(headers)
    require_token(given.get("x-gitlab-token"), secret)
    document = read_document(body)
    event = text_at(document, "object_kind") or require_header(given, "x-gitlab-event")
    kind, subject = _note(document) if event == "note" else _EVENTS.get(event, _OTHER)
    actor = text_at(document, "user", "username") or text_at(document, "user_username")
    return Delivery(
        # The key stays the same when GitLab repeats a delivery.
        id=require_header(given, "idempotency-key", "x-gitlab-event-uuid"),
        kind=kind,
        action=_action_of(document) or event,
        repository_id=text_at(document, "project", "id") or text_at(document, "project_id"),
        repository_name=text_at(document, "project", "path_with_namespace"),
        subject=text_at(document, *subject) if subject else None,
        actor=actor,
        actor_is_bot="_bot" in (actor or ""),
        body=document,
    )


def _note(document: Mapping[str, Any]) -> tuple[DeliveryKind, tuple[str, ...]]:
    """Tell comments on lines of a merge request from others."""
    of = text_at(document, "object_attributes", "noteable_type")
    if of == "Issue":
        return DeliveryKind.COMMENT, ("issue", "iid")
    if of != "MergeRequest":
        return _OTHER
    is_on_line = isinstance(document["object_attributes"].get("position"), dict)
    kind = DeliveryKind.REVIEW_COMMENT if is_on_line else DeliveryKind.COMMENT
    return kind, ("merge_request", "iid")


def _action_of(document: Mapping[str, Any]) -> str | None:
    attributes = ("object_attributes",)
    return text_at(document, *attributes, "action") or text_at(document, *attributes, "status")
