"""Request bodies and headers as the server's own types."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from pydantic import BaseModel

from sandbox_server.domain.errors import IdempotencyMismatch
from sandbox_server.domain.requests import Idempotency
from sandbox_server.http.declared_errors import may_fail_with

IdempotencyKey = Annotated[
    str | None,
    may_fail_with(IdempotencyMismatch),
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Unique key of this request: repeating the request with the same key returns the first result and creates nothing new.",
    ),
]


@dataclass(frozen=True)
class IdempotentRequest:
    """A request with an optional idempotency key."""

    key: str | None
    method: str
    path: str

    def of(self, body: BaseModel) -> Idempotency | None:
        if self.key is None:
            return None
        document = body.model_dump(mode="json")
        return Idempotency.of(self.key, method=self.method, path=self.path, body=document)


async def find_idempotent_request(
    request: Request, idempotency_key: IdempotencyKey = None
) -> IdempotentRequest:
    return IdempotentRequest(idempotency_key, request.method, request.url.path)


IdempotencyDep = Annotated[IdempotentRequest, Depends(find_idempotent_request)]


def request_fields(body: BaseModel) -> dict[str, Any]:
    """List the fields that were sent; `NAME_s` becomes the duration `NAME`."""
    sent = body.model_dump(exclude_unset=True, exclude_none=True)
    for name in [name for name in sent if name.endswith("_s")]:
        sent[name.removesuffix("_s")] = timedelta(seconds=sent.pop(name))
    return sent
