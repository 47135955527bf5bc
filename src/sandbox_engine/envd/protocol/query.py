from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qsl

from sandbox_engine.envd.protocol.access import Operation, SignedRequest

if TYPE_CHECKING:
    from starlette.types import Scope


@dataclass(frozen=True)
class FileQuery:
    """The query of a file request; None for missing parameters."""

    path: str | None
    username: str | None
    signature: str | None
    expiration: str | None

    @classmethod
    def of(cls, scope: Scope) -> Self:
        """Parse a request's query; a path may contain any bytes."""
        text = scope["query_string"].decode(errors="surrogateescape")
        pairs = parse_qsl(text, keep_blank_values=True, errors="surrogateescape")
        first = dict(reversed(pairs))
        return cls(
            path=first.get("path"),
            username=first.get("username"),
            signature=first.get("signature"),
            expiration=first.get("signature_expiration"),
        )

    def signed(self, operation: Operation) -> SignedRequest:
        """Return the signed parts of this request."""
        return SignedRequest(
            self.path or "", operation, self.username or "", self.signature, self.expiration
        )


def signed_request(scope: Scope) -> SignedRequest:
    """Return the signed parts of a file request."""
    operation: Operation = "read" if scope["method"] in ("GET", "HEAD") else "write"
    return FileQuery.of(scope).signed(operation)
