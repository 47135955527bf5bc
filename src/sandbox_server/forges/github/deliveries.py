"""Webhook deliveries of GitHub.

Nothing here is a model of a whole payload: GitHub adds and omits fields, and a delivery that cannot be read would be lost.
"""

from collections.abc import Mapping
from typing import Any

from sandbox_server.domain.tasks.forges import Delivery, DeliveryKind
from sandbox_server.forges.connection.deliveries import (
    lower_names,
    read_document,
    require_header,
    require_hmac,
    text_at,
)

_SHA = ("head_sha",)
# The kind of each event, and where its subject is.
_EVENTS: Mapping[str, tuple[DeliveryKind, tuple[str, ...]]] = {
    "issues": (DeliveryKind.ISSUE, ("issue", "number")),
    "issue_comment": (DeliveryKind.COMMENT, ("issue", "number")),
    "pull_request": (DeliveryKind.PULL, ("pull_request", "number")),
    "pull_request_review": (DeliveryKind.REVIEW, ("pull_request", "number")),
    "pull_request_review_comment": (DeliveryKind.REVIEW_COMMENT, ("pull_request", "number")),
    "check_run": (DeliveryKind.CHECK, ("check_run", *_SHA)),
    "check_suite": (DeliveryKind.CHECK, ("check_suite", *_SHA)),
    "workflow_run": (DeliveryKind.CHECK, ("workflow_run", *_SHA)),
    "workflow_job": (DeliveryKind.CHECK, ("workflow_job", *_SHA)),
    "status": (DeliveryKind.CHECK, ("sha",)),
    "push": (DeliveryKind.PUSH, ("ref",)),
    "installation": (DeliveryKind.INSTALLATION, ("installation", "id")),
    "installation_repositories": (DeliveryKind.INSTALLATION, ("installation", "id")),
    "ping": (DeliveryKind.PING, ("hook_id",)),
}
_OTHER: tuple[DeliveryKind, tuple[str, ...]] = (DeliveryKind.OTHER, ())


def read_delivery(headers: Mapping[str, str], body: bytes, secret: bytes) -> Delivery:
    """Verify `X-Hub-Signature-256` over the raw body and read the delivery."""
    given = lower_names(headers)
    require_hmac(given.get("x-hub-signature-256", "").removeprefix("sha256="), body, secret)
    return _read(given, read_document(body))


def _read(headers: Mapping[str, str], document: Mapping[str, Any]) -> Delivery:
    event = require_header(headers, "x-github-event")
    kind, subject = _EVENTS.get(event, _OTHER)
    actor = text_at(document, "sender", "login")
    return Delivery(
        id=require_header(headers, "x-github-delivery"),
        kind=kind,
        action=text_at(document, "action") or event,
        repository_id=text_at(document, "repository", "id"),
        repository_name=text_at(document, "repository", "full_name"),
        installation_id=text_at(document, "installation", "id"),
        subject=text_at(document, *subject) if subject else None,
        actor=actor,
        actor_is_bot=text_at(document, "sender", "type") == "Bot"
        or (actor or "").endswith("[bot]"),
        body=document,
    )
