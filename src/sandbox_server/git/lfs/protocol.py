"""The batch API of Git LFS: which objects a client wants to transfer, and where each of them is."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

MEDIA_TYPE: Final = "application/vnd.git-lfs+json"
MAX_OBJECT: Final = 5 * 2**30
"""The largest that any forge takes."""
MAX_BATCH: Final = 100

Oid = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""The SHA-256 of a content."""


class Operation(StrEnum):
    DOWNLOAD = "download"
    UPLOAD = "upload"


class LfsObject(BaseModel):
    """A content, as a pointer names it."""

    model_config = ConfigDict(frozen=True)

    oid: Oid
    size: Annotated[int, Field(strict=True, ge=0, le=MAX_OBJECT)]


class BatchRequest(BaseModel):
    """A client's batch request."""

    operation: Operation
    objects: Annotated[list[LfsObject], Field(min_length=1, max_length=MAX_BATCH)]
    transfers: list[str] = ["basic"]
    hash_algo: Literal["sha256"] = "sha256"


class LfsAction(BaseModel):
    """One request of a transfer. Its headers may hold a credential."""

    href: str
    header: Annotated[dict[str, str], Field(repr=False)] = {}


class ObjectFailure(BaseModel):
    """Why an object cannot be transferred; the code is that of an HTTP answer."""

    code: int
    message: str = ""


class ObjectAnswer(BaseModel):
    """The forge's answer for one object. An upload without actions means that the forge has it."""

    oid: Oid
    size: int = 0
    actions: dict[str, LfsAction] = {}
    error: ObjectFailure | None = None


class _BatchAnswer(BaseModel):
    transfer: Literal["basic"] = "basic"
    objects: Annotated[list[ObjectAnswer], Field(max_length=MAX_BATCH)]


class MalformedLfs(Exception):
    """It is not the JSON of the batch API; the text says what is wrong."""


def read_request(body: bytes) -> BatchRequest:
    try:
        asked = BatchRequest.model_validate_json(body)
    except ValidationError as error:
        raise MalformedLfs(_first(error)) from None
    if "basic" not in asked.transfers:
        raise MalformedLfs("only basic transfers are served")
    return asked


def write_request(operation: Operation, objects: Sequence[LfsObject]) -> bytes:
    asked = BatchRequest(operation=operation, objects=list(objects))
    return asked.model_dump_json().encode()


def read_answer(body: bytes) -> Mapping[str, ObjectAnswer]:
    """Read a forge's answer, by the objects' ids."""
    try:
        answered = _BatchAnswer.model_validate_json(_without_nulls(body))
    except (ValidationError, ValueError) as error:
        raise MalformedLfs(_first(error)) from None
    return {one.oid: one for one in answered.objects}


def _without_nulls(body: bytes) -> bytes:
    """Drop members that are null, which some forges write for what is not there."""
    drop = json.loads(
        body, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if v is not None}
    )
    return json.dumps(drop).encode()


def _first(error: ValidationError | ValueError) -> str:
    if not isinstance(error, ValidationError):
        return "it is not JSON"
    found: Any = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, found["loc"]))
    return f"{where}: {found['msg']}" if where else str(found["msg"])
