import base64
import binascii
import hashlib
import hmac
import re
import time
from dataclasses import dataclass
from typing import Literal

Operation = Literal["read", "write"]

_DECIMAL = re.compile(r"[+-]?[0-9]{1,18}")


class AccessDenied(Exception):
    """Missing or invalid credentials; the message is the reason."""


class InvalidExpiration(ValueError):
    """The signature's expiration is not a number."""


@dataclass(frozen=True)
class SignedRequest:
    """Parts of a file request covered by its signature, as given in the query."""

    path: str
    operation: Operation
    username: str
    signature: str | None
    expiration: str | None


def basic_user(authorization: str | None) -> str | None:
    """Parse the user name of a Basic Authorization header; None for other schemes."""
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, _ = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return name if colon else None


def is_token(expected: str, received: str) -> bool:
    """Compare access tokens in constant time."""
    return hmac.compare_digest(_octets(expected), _octets(received))


def check_signature(request: SignedRequest, token: str) -> None:
    """Require a valid, unexpired signature made with the sandbox's token."""
    expiration = _expiration(request.expiration)
    if not request.signature:
        raise AccessDenied("missing signature query parameter")
    if not hmac.compare_digest(_octets(request.signature), sign(request, token).encode()):
        raise AccessDenied("invalid signature")
    if expiration is not None and expiration < time.time():
        raise AccessDenied("signature is already expired")


def sign(request: SignedRequest, token: str) -> str:
    """Compute the signature of a file request."""
    covered = [request.path, request.operation, request.username, token]
    if (expiration := _expiration(request.expiration)) is not None:
        covered.append(str(expiration))
    digest = hashlib.sha256(_octets(":".join(covered))).digest()
    return "v1_" + base64.b64encode(digest).decode().rstrip("=")


def _expiration(text: str | None) -> int | None:
    if text is None:
        return None
    if not _DECIMAL.fullmatch(text):
        raise InvalidExpiration(
            f"Invalid format for parameter signature_expiration: '{text}' is no integer"
        )
    return int(text)


def _octets(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
