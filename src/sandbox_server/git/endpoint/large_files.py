"""Git LFS for sandboxes: what the forge says about objects, with addresses of this server, and the contents through it.

Nothing is remembered between requests, so any server can answer each of them: it asks the forge again.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from http import HTTPStatus

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from sandbox_http.headers import find_header
from sandbox_http.origin import HEADER
from sandbox_server.domain.errors import GitError
from sandbox_server.domain.tasks.forges import GitAccess
from sandbox_server.git.endpoint.access import RepositoryGrant
from sandbox_server.git.endpoint.refusals import GitRefused, malformed, not_pushable
from sandbox_server.git.endpoint.request_body import read_body, read_small
from sandbox_server.git.endpoint.sandbox_config import DOOR
from sandbox_server.git.lfs.contents import WrongContent
from sandbox_server.git.lfs.protocol import (
    MEDIA_TYPE,
    BatchRequest,
    LfsAction,
    LfsObject,
    MalformedLfs,
    ObjectAnswer,
    ObjectFailure,
    Operation,
    read_request,
)
from sandbox_server.git.lfs.server import LfsServer, ObjectRefused
from sandbox_server.git.mirrors import Credentials
from sandbox_server.http.connection import abort_of

log = logging.getLogger(__name__)

_MAX_REQUEST = 2**20
_NEEDED = {Operation.DOWNLOAD: GitAccess.READ, Operation.UPLOAD: GitAccess.WRITE}


class LargeFiles:
    """Serves Git LFS; its clients see no credential of the forge and no address that has one."""

    def __init__(
        self, server: LfsServer, credentials: Credentials, *, public_url: str | None
    ) -> None:
        self._server = server
        self._credentials = credentials
        self._public_url = public_url

    async def batch(self, grant: RepositoryGrant, scope: Scope, receive: Receive) -> Response:
        """Answer where objects are: here, if the forge has them or takes them."""
        asked = _read(await read_small(receive, limit=_MAX_REQUEST))
        if asked.operation is Operation.UPLOAD:
            _require_pushable(grant)
        credential = await self._credentials(grant.repository, _NEEDED[asked.operation])
        found = await self._server.batch(credential, asked.operation, asked.objects)
        base = f"{self._base(scope)}/git/{grant.address}.git/info/lfs/objects"
        objects = [_answer(asked, each, found.get(each.oid), base) for each in asked.objects]
        return lfs_response({"transfer": "basic", "hash_algo": "sha256", "objects": objects})

    async def download(self, grant: RepositoryGrant, oid: str, scope: Scope, send: Send) -> None:
        """Send a content as it comes from where the forge keeps it."""
        wanted = _object(oid, Request(scope).query_params.get("size"))
        credential = await self._credentials(grant.repository, GitAccess.READ)
        try:
            async with self._server.download(credential, wanted) as parts, aclosing(parts):
                await _stream(scope, send, parts, length=wanted.size)
        except ObjectRefused as refused:
            raise _refusal(refused) from None

    async def upload(
        self, grant: RepositoryGrant, oid: str, scope: Scope, receive: Receive
    ) -> Response:
        """Send a content on to where the forge wants it, complete only if it is what its name says."""
        _require_pushable(grant)
        length = find_header(scope["headers"], b"content-length")
        if length is None:
            raise GitRefused(HTTPStatus.LENGTH_REQUIRED, "the size of the content is missing.")
        wanted = _object(oid, length.decode("latin-1"))
        credential = await self._credentials(grant.repository, GitAccess.WRITE)
        async with aclosing(read_body(receive, limit=wanted.size)) as body:
            try:
                await self._server.upload(credential, wanted, body)
            except WrongContent as error:
                raise GitRefused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}.") from None
            except ObjectRefused as refused:
                raise _refusal(refused) from None
        return Response()

    def _base(self, scope: Scope) -> str:
        if find_header(scope["headers"], HEADER) is not None:
            return DOOR
        return self._public_url or str(Request(scope).base_url).rstrip("/")


def lfs_response(content: object, status: int = HTTPStatus.OK) -> Response:
    return JSONResponse(content, status, media_type=MEDIA_TYPE)


def lfs_refusal(refused: GitRefused) -> Response:
    """Refuse a request in the form that clients of Git LFS show."""
    answer = lfs_response({"message": f"sandbox-server: {refused.text}"}, refused.status)
    answer.headers.update(refused.headers or {})
    return answer


def _read(body: bytes) -> BatchRequest:
    try:
        return read_request(body)
    except MalformedLfs as error:
        raise GitRefused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}.") from None


def _object(oid: str, size: str | None) -> LfsObject:
    try:
        return LfsObject(oid=oid, size=int(size or ""))
    except (ValueError, ValidationError):
        raise malformed("the size of the content is missing or not valid.") from None


def _require_pushable(grant: RepositoryGrant) -> None:
    if grant.branch is None:
        raise not_pushable(grant.address)


def _answer(
    asked: BatchRequest, wanted: LfsObject, found: ObjectAnswer | None, base: str
) -> dict[str, object]:
    """Repeat what the forge says about an object, without its addresses and headers."""
    is_upload = asked.operation is Operation.UPLOAD
    answer: dict[str, object] = {"oid": wanted.oid, "size": wanted.size}
    if found is not None and found.error is not None:
        answer["error"] = found.error.model_dump()
    elif found is not None and asked.operation in found.actions:
        action = LfsAction(href=f"{base}/{wanted.oid}?size={wanted.size}")
        answer["actions"] = {asked.operation: action.model_dump()}
    elif found is None or not is_upload:
        missing = ObjectFailure(code=HTTPStatus.NOT_FOUND, message="the forge does not have it")
        answer["error"] = missing.model_dump()
    return answer


def _refusal(refused: ObjectRefused) -> GitRefused:
    code = refused.failure.code
    status = HTTPStatus(code) if code in set(HTTPStatus) and code >= 400 else HTTPStatus.BAD_GATEWAY  # noqa: PLR2004
    return GitRefused(status, f"the forge does not transfer this object: {refused}")


async def _stream(scope: Scope, send: Send, parts: AsyncIterator[bytes], *, length: int) -> None:
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", str(length).encode()),
    ]
    try:
        first = await anext(parts, b"")
    except WrongContent as error:
        raise GitRefused(HTTPStatus.BAD_GATEWAY, f"of the forge: {error}.") from None
    await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": headers})
    try:
        await send({"type": "http.response.body", "body": first, "more_body": True})
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    except (WrongContent, GitError) as error:
        log.warning("large file not sent: %s", error)
        with suppress(Exception):
            abort_of(scope)()
        return
    await send({"type": "http.response.body", "body": b"", "more_body": False})
