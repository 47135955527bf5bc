import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from datetime import timedelta
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandbox_http.headers import find_header
from sandbox_server.db.models import Sandbox
from sandbox_server.domain.errors import SandboxError
from sandbox_server.git.endpoint.access import GitAccess, RepositoryGrant
from sandbox_server.git.endpoint.fetching import MAX_REQUEST, Fetches
from sandbox_server.git.endpoint.git_child import ChildFailed
from sandbox_server.git.endpoint.large_files import LargeFiles, lfs_refusal
from sandbox_server.git.endpoint.push_report import KEEP_ALIVE, RefResult, report_push
from sandbox_server.git.endpoint.push_request import MAX_HEAD, PushRequest, read_push
from sandbox_server.git.endpoint.push_rules import refuse_commands
from sandbox_server.git.endpoint.pushing import MAX_PACK, Pushes, PushRefused
from sandbox_server.git.endpoint.refusals import (
    GitRefused,
    busy,
    malformed,
    not_pushable,
    of_error,
    unknown_path,
)
from sandbox_server.git.endpoint.request_body import ClientGone, read_body, read_small
from sandbox_server.git.endpoint.targets import GitService, GitTarget, parse_target
from sandbox_server.git.pkt_line import MalformedPktLine, PktLineReader
from sandbox_server.http.connection import abort_of
from sandbox_server.http.deps import find_component
from sandbox_server.http.request_metrics import NamedRoute
from sandbox_server.structured_logging import add_to_log_context

log = logging.getLogger(__name__)

GIT_PATH = "/git/{rest:path}"

_ROUTE = NamedRoute(GIT_PATH)
_NOT_CACHED = {
    "Cache-Control": "no-cache, max-age=0, must-revalidate",
    "Pragma": "no-cache",
    "Expires": "Fri, 01 Jan 1980 00:00:00 GMT",
}
_AT_ONCE, _AT_ONCE_PER_SANDBOX = 24, 6
_KEEP_ALIVE_EVERY = timedelta(seconds=1)


class GitRoute:
    """ASGI app of the paths below /git/."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = _ROUTE
        await find_component(scope, GitEndpoint).serve(scope, receive, send)


class GitEndpoint:
    """Serves git's smart HTTP protocol to sandboxes."""

    def __init__(
        self, access: GitAccess, fetches: Fetches, pushes: Pushes, large_files: LargeFiles
    ) -> None:
        self._access = access
        self._fetches = fetches
        self._pushes = pushes
        self._large_files = large_files
        self._active: Counter[str] = Counter()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = parse_target(scope["path"])
        try:
            await self._serve(target, scope, receive, send)
        except GitRefused as refused:
            await _refusal(target, refused)(scope, receive, send)
        except SandboxError as error:
            await _refusal(target, of_error(error))(scope, receive, send)
        except ClientGone:
            pass

    async def _serve(
        self, target: GitTarget | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if target is None:
            raise unknown_path()
        sandbox = await self._access.identify(scope)
        add_to_log_context(sandbox_id=sandbox.id)
        with self._counting(sandbox, target):
            grant = await self._access.authorize(sandbox, target.address)
            await self._answer(target, grant, scope, receive, send)

    async def _answer(
        self, target: GitTarget, grant: RepositoryGrant, scope: Scope, receive: Receive, send: Send
    ) -> None:
        request = Request(scope)
        asked_for = request.query_params.get("service")
        match scope["method"], target.service, asked_for:
            case "GET", GitService.REFS, GitService.UPLOAD_PACK:
                async with AsyncExitStack() as stack:
                    output = await self._fetches.open_refs(stack, grant, scope)
                    await _stream(scope, send, output, "git-upload-pack-advertisement")
            case "POST", GitService.UPLOAD_PACK, None:
                body = await read_small(receive, limit=MAX_REQUEST)
                async with AsyncExitStack() as stack:
                    output = await self._fetches.open_pack(stack, grant, scope, body)
                    await _stream(scope, send, output, "git-upload-pack-result")
            case "GET", GitService.REFS, GitService.RECEIVE_PACK:
                refs = await self._pushes.list_refs(_pushable(grant))
                await _whole("git-receive-pack-advertisement", refs)(scope, receive, send)
            case "POST", GitService.RECEIVE_PACK, None:
                await self._receive(_pushable(grant), scope, receive, send)
            case _, service, _ if service.is_lfs:
                await self._answer_lfs(target, grant, scope, receive, send)
            case _:
                raise unknown_path()

    async def _answer_lfs(
        self, target: GitTarget, grant: RepositoryGrant, scope: Scope, receive: Receive, send: Send
    ) -> None:
        match scope["method"], target.service, target.oid:
            case "POST", GitService.LFS_BATCH, None:
                answer = await self._large_files.batch(grant, scope, receive)
                await answer(scope, receive, send)
            case "GET", GitService.LFS_OBJECT, str(oid):
                await self._large_files.download(grant, oid, scope, send)
            case "PUT", GitService.LFS_OBJECT, str(oid):
                answer = await self._large_files.upload(grant, oid, scope, receive)
                await answer(scope, receive, send)
            case _, GitService.LFS_LOCKS, _:
                raise GitRefused(HTTPStatus.FORBIDDEN, "files cannot be locked here.")
            case _:
                raise unknown_path()

    async def _receive(
        self, grant: RepositoryGrant, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if find_header(scope["headers"], b"content-encoding") is not None:
            raise GitRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "pushes cannot be compressed.")
        async with aclosing(read_body(receive, limit=MAX_HEAD + 2 * MAX_PACK)) as body:
            lines = PktLineReader(body, limit=MAX_HEAD)
            try:
                push = await read_push(lines)
            except MalformedPktLine as error:
                raise malformed(str(error)) from None
            if push.is_probe:
                await _whole("git-receive-pack-result", b"")(scope, receive, send)
                return
            answer = self._take(grant, push, lines.rest())
            await _stream(scope, send, answer, "git-receive-pack-result")

    async def _take(
        self, grant: RepositoryGrant, push: PushRequest, pack: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        refused = refuse_commands(push, grant)
        if refused:
            await _drop(pack)
            allowed = f"sandbox-server: from here only refs/heads/{grant.branch} can be pushed."
            yield report_push(push, refused, messages=[allowed])
            return
        try:
            await self._pushes.store(grant, push, pack)
        except PushRefused as error:
            await _drop(pack)
            yield report_push(push, _all(push, str(error)), unpack="refused")
            return
        forwarding = asyncio.create_task(self._forward(grant, push))
        try:
            while not forwarding.done():
                await asyncio.wait([forwarding], timeout=_KEEP_ALIVE_EVERY.total_seconds())
                if not forwarding.done() and "side-band-64k" in push.capabilities:
                    yield KEEP_ALIVE
            yield await forwarding
        finally:
            # A client that is gone does not stop a push half-way: its effect would be unknown.
            await asyncio.shield(asyncio.wait([forwarding]))

    async def _forward(self, grant: RepositoryGrant, push: PushRequest) -> bytes:
        [command] = push.commands  # others were refused: their refs are not the granted one
        try:
            result, messages = await self._pushes.forward(grant, command)
        except (PushRefused, SandboxError) as error:
            return report_push(push, _all(push, str(error)))
        log.info("push sandbox_id=%s refused=%s", grant.sandbox.id, result.reason)
        return report_push(push, [result], messages=messages)

    @contextmanager
    def _counting(self, sandbox: Sandbox, target: GitTarget) -> Iterator[None]:
        if self._active[sandbox.id] >= _AT_ONCE_PER_SANDBOX or self._active.total() >= _AT_ONCE:
            # Clients of Git LFS give a file up after a 503, and come back after a 429.
            raise busy(
                HTTPStatus.TOO_MANY_REQUESTS
                if target.service.is_lfs
                else HTTPStatus.SERVICE_UNAVAILABLE
            )
        self._active[sandbox.id] += 1
        try:
            yield
        finally:
            self._active[sandbox.id] -= 1
            if not self._active[sandbox.id]:
                del self._active[sandbox.id]


def _pushable(grant: RepositoryGrant) -> RepositoryGrant:
    if grant.branch is None:
        raise not_pushable(grant.address)
    return grant


def _all(push: PushRequest, reason: str) -> list[RefResult]:
    return [RefResult(ref=command.ref, reason=reason) for command in push.commands]


async def _drop(pack: AsyncIterator[bytes]) -> None:
    """Read the rest: git reads an answer only after it has sent its request."""
    async for _ in pack:
        pass


def _refusal(target: GitTarget | None, refused: GitRefused) -> Response:
    is_lfs = target is not None and target.service.is_lfs
    return lfs_refusal(refused) if is_lfs else refused.response()


def _whole(kind: str, content: bytes) -> Response:
    return Response(content, media_type=f"application/x-{kind}", headers=_NOT_CACHED)


async def _stream(scope: Scope, send: Send, parts: AsyncIterator[bytes], kind: str) -> None:
    """Send parts as they come; an answer that breaks off must not pass for whole."""
    first = await anext(parts, b"")
    await send(
        {
            "type": "http.response.start",
            "status": HTTPStatus.OK,
            "headers": [
                (b"content-type", f"application/x-{kind}".encode()),
                *((name.lower().encode(), value.encode()) for name, value in _NOT_CACHED.items()),
            ],
        }
    )
    try:
        await send({"type": "http.response.body", "body": first, "more_body": True})
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    except (ChildFailed, TimeoutError) as error:
        log.warning("git ended with an error: %s", error)
        with suppress(Exception):
            abort_of(scope)()
        return
    await send({"type": "http.response.body", "body": b"", "more_body": False})
