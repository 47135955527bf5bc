"""Verification of webhook deliveries, which is the same for several forges."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from sandbox_server.domain.errors import InvalidRequest, SignatureRefused


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def require_hmac(signature: str | None, body: bytes, secret: bytes) -> None:
    """Compare a hexadecimal HMAC-SHA256 of the raw body, in constant time."""
    expected = hmac.new(secret, body, hashlib.sha256).hexdigest()
    if not secret or not hmac.compare_digest(expected.encode(), (signature or "").encode()):
        raise SignatureRefused("The delivery is not signed with the webhook secret of this forge.")


def require_token(token: str | None, secret: bytes) -> None:
    """Compare a token that is the secret itself, in constant time."""
    if not secret or not hmac.compare_digest(secret, (token or "").encode()):
        raise SignatureRefused("The delivery does not bear the webhook secret of this forge.")


def read_document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidRequest("The delivery is not a JSON object.")
    return document


def require_header(headers: Mapping[str, str], *names: str) -> str:
    """Find the first of these headers; a delivery without an id could not be told from a repeated one."""
    for name in names:
        if headers.get(name):
            return headers[name]
    raise InvalidRequest(f"The delivery has no header {names[0]}.")


def text_at(document: Mapping[str, Any], *path: str) -> str | None:
    """Read a text or a number at a path; None where the document has none."""
    value: Any = document
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
