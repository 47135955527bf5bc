"""Webhook deliveries of Forgejo and Gitea."""

from collections.abc import Mapping

from sandbox_server.domain.tasks.forges import Delivery, DeliveryKind
from sandbox_server.forges.connection.deliveries import (
    lower_names,
    read_document,
    require_header,
    require_hmac,
    text_at,
)

_PULL = (DeliveryKind.PULL, ("pull_request", "number"))
_REVIEW = (DeliveryKind.REVIEW, ("pull_request", "number"))
_ISSUE = (DeliveryKind.ISSUE, ("issue", "number"))
_EVENTS: Mapping[str, tuple[DeliveryKind, tuple[str, ...]]] = {
    "issues": _ISSUE,
    "issue_assign": _ISSUE,
    "issue_label": _ISSUE,
    "issue_comment": (DeliveryKind.COMMENT, ("issue", "number")),
    "pull_request": _PULL,
    "pull_request_sync": _PULL,
    "pull_request_label": _PULL,
    "pull_request_comment": (DeliveryKind.COMMENT, ("pull_request", "number")),
    "pull_request_approved": _REVIEW,
    "pull_request_rejected": _REVIEW,
    "pull_request_review_approved": _REVIEW,
    "pull_request_review_rejected": _REVIEW,
    "pull_request_review_comment": _REVIEW,
    "status": (DeliveryKind.CHECK, ("sha",)),
    "workflow_run": (DeliveryKind.CHECK, ("workflow_run", "head_sha")),
    "workflow_job": (DeliveryKind.CHECK, ("workflow_job", "head_sha")),
    "push": (DeliveryKind.PUSH, ("ref",)),
}
_OTHER: tuple[DeliveryKind, tuple[str, ...]] = (DeliveryKind.OTHER, ())


def read_delivery(headers: Mapping[str, str], body: bytes, secret: bytes) -> Delivery:
    """Verify the HMAC over the raw body and read the delivery."""
    given = lower_names(headers)
    signature = given.get("x-forgejo-signature") or given.get("x-gitea-signature")
    require_hmac(signature, body, secret)
    document = read_document(body)
    event = _event_of(given)
    kind, subject = _EVENTS.get(event, _OTHER)
    return Delivery(
        id=require_header(given, "x-forgejo-delivery", "x-gitea-delivery"),
        kind=kind,
        action=text_at(document, "action") or event,
        repository_id=text_at(document, "repository", "id"),
        repository_name=text_at(document, "repository", "full_name"),
        subject=text_at(document, *subject) if subject else None,
        actor=text_at(document, "sender", "login"),
        body=document,
    )


def _event_of(headers: Mapping[str, str]) -> str:
    """Prefer the type, which tells comments on pull requests from those on issues."""
    return require_header(
        headers,
        "x-forgejo-event-type",
        "x-gitea-event-type",
        "x-forgejo-event",
        "x-gitea-event",
    )
