import base64
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cached_property
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

import httpx

from sandbox_server.domain.errors import RemoteRefused, RemoteUnreachable
from sandbox_server.domain.tasks.forges import GitCredential
from sandbox_server.git.lfs.addresses import AddressCheck, is_same_origin
from sandbox_server.git.lfs.contents import verified
from sandbox_server.git.lfs.protocol import (
    MAX_BATCH,
    MEDIA_TYPE,
    LfsAction,
    LfsObject,
    MalformedLfs,
    ObjectAnswer,
    ObjectFailure,
    Operation,
    read_answer,
    write_request,
)

_CONNECT_S, _IDLE_S = 10.0, 60.0
# A store may copy an uploaded content before it answers.
_UPLOAD = httpx.Timeout(_IDLE_S, connect=_CONNECT_S, read=300.0)
_ASK_AGAIN = timedelta(seconds=30)
_LARGEST_ANSWER = 2**20
_PART = 64 * 1024
_MOVED = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 3
_REPEATABLE = frozenset({408, 425, 429})
# They say how a body is sent, which is decided here.
_NOT_PASSED_ON = frozenset({"host", "connection", "content-length", "transfer-encoding"})


class ObjectRefused(Exception):
    """The forge does not transfer an object, and says why."""

    def __init__(self, failure: ObjectFailure) -> None:
        super().__init__(failure.message or f"the forge answered {failure.code}")
        self.failure = failure


class LfsServer:
    """Transfers contents from and to the LFS servers of forges, in parts: none is held in memory."""

    def __init__(self, addresses: AddressCheck | None = None) -> None:
        self._addresses = addresses or AddressCheck()

    async def batch(
        self, credential: GitCredential, operation: Operation, objects: Sequence[LfsObject]
    ) -> Mapping[str, ObjectAnswer]:
        """Ask a forge about objects; those that it does not mention are missing in the answer."""
        found: dict[str, ObjectAnswer] = {}
        for start in range(0, len(objects), MAX_BATCH):
            found |= await self._batch(credential, operation, objects[start : start + MAX_BATCH])
        return found

    @asynccontextmanager
    async def download(
        self, credential: GitCredential, wanted: LfsObject
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Open a content; reading it raises `WrongContent` before its end if it is another one."""
        action = await self._action(credential, Operation.DOWNLOAD, wanted)
        if action is None:
            raise ObjectRefused(ObjectFailure(code=HTTPStatus.NOT_FOUND))
        async with _failures(credential):
            answer = await self._get(action, credential)
            try:
                _require_success(answer, credential)
                yield verified(_parts_of(answer, credential), wanted)
            finally:
                await answer.aclose()

    async def upload(
        self, credential: GitCredential, wanted: LfsObject, parts: AsyncIterator[bytes]
    ) -> None:
        """Send a content unless the forge has it; nothing is complete there that `WrongContent` stops."""
        answer = await self._ask(credential, Operation.UPLOAD, wanted)
        action = answer.actions.get("upload")
        if action is None:
            async for _ in verified(parts, wanted):
                pass
            return
        headers = {"Content-Type": "application/octet-stream", **_passed_on(action)}
        headers["Content-Length"] = str(wanted.size)
        sent = await self._whole(
            "PUT", action.href, credential, headers, content=verified(parts, wanted)
        )
        _require_success(sent, credential)
        if "verify" in answer.actions:
            await self._verify(credential, answer.actions["verify"], wanted)

    async def _batch(
        self, credential: GitCredential, operation: Operation, objects: Sequence[LfsObject]
    ) -> Mapping[str, ObjectAnswer]:
        headers = {"Accept": MEDIA_TYPE, "Content-Type": MEDIA_TYPE, **_authorization(credential)}
        content = write_request(operation, objects)
        url = f"{_lfs_url(credential)}/objects/batch"
        said = await self._whole("POST", url, credential, headers, content=content)
        _require_success(said, credential)
        try:
            return read_answer(said.content)
        except MalformedLfs as error:
            raise RemoteUnreachable("lfs", f"the forge's answer is not valid: {error}") from None

    async def _ask(
        self, credential: GitCredential, operation: Operation, wanted: LfsObject
    ) -> ObjectAnswer:
        answer = (await self._batch(credential, operation, [wanted])).get(wanted.oid)
        if answer is None:
            raise ObjectRefused(ObjectFailure(code=HTTPStatus.NOT_FOUND))
        if answer.error is not None:
            raise ObjectRefused(answer.error)
        return answer

    async def _action(
        self, credential: GitCredential, operation: Operation, wanted: LfsObject
    ) -> LfsAction | None:
        return (await self._ask(credential, operation, wanted)).actions.get(operation)

    async def _get(self, action: LfsAction, credential: GitCredential) -> httpx.Response:
        """Follow redirections to the content; another host gets no header, since it may be a credential."""
        url, headers = action.href, _passed_on(action)
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._send("GET", url, credential, headers)
            location = answer.headers.get("location")
            if answer.status_code not in _MOVED or location is None:
                return answer
            await answer.aclose()
            moved = urljoin(url, location)
            headers = headers if is_same_origin(moved, url) else {}
            url = moved
        raise RemoteRefused("lfs", "the forge redirects too often")

    async def _verify(
        self, credential: GitCredential, action: LfsAction, wanted: LfsObject
    ) -> None:
        headers = {"Accept": MEDIA_TYPE, **_passed_on(action), "Content-Type": MEDIA_TYPE}
        content = wanted.model_dump_json().encode()
        said = await self._whole("POST", action.href, credential, headers, content=content)
        _require_success(said, credential)

    async def _whole(
        self,
        method: str,
        url: str,
        credential: GitCredential,
        headers: Mapping[str, str],
        *,
        content: bytes | AsyncGenerator[bytes, None],
    ) -> httpx.Response:
        """Send a request whose answer is small."""
        async with _failures(credential):
            answer = await self._send(method, url, credential, headers, content)
            try:
                body = bytearray()
                async for part in answer.aiter_bytes(_PART):
                    body += part
                    if len(body) > _LARGEST_ANSWER:
                        raise RemoteUnreachable("lfs", "the forge's answer is too large")
            finally:
                await answer.aclose()
        return httpx.Response(answer.status_code, content=bytes(body))

    async def _send(
        self,
        method: str,
        url: str,
        credential: GitCredential,
        headers: Mapping[str, str],
        content: bytes | AsyncGenerator[bytes, None] | None = None,
    ) -> httpx.Response:
        target = await self._addresses.check(url, forge=credential.url)
        request = self._http.build_request(
            method,
            target.url,
            headers={"Accept-Encoding": "identity", **headers, **target.headers},
            content=content,
            timeout=_UPLOAD if method == "PUT" else httpx.USE_CLIENT_DEFAULT,
            extensions=dict(target.extensions),
        )
        return await self._http.send(request, stream=True, auth=None)

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        # No connection is used twice: the next request may be for another host at the same address.
        return httpx.AsyncClient(
            timeout=httpx.Timeout(_IDLE_S, connect=_CONNECT_S),
            limits=httpx.Limits(max_keepalive_connections=0),
            follow_redirects=False,
            headers={"User-Agent": "sandbox-server"},
        )


@asynccontextmanager
async def _failures(credential: GitCredential) -> AsyncIterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # Only the kind of failure: the text could repeat what was sent.
        host = urlsplit(credential.url).hostname
        reason = f"the connection to {host} failed ({type(error).__name__})"
        raise RemoteUnreachable("lfs", reason, retry_after=_ASK_AGAIN) from None


async def _parts_of(
    answer: httpx.Response, credential: GitCredential
) -> AsyncGenerator[bytes, None]:
    async with _failures(credential):
        async for part in answer.aiter_bytes(_PART):
            yield part


def _require_success(answer: httpx.Response, credential: GitCredential) -> None:
    status, host = answer.status_code, urlsplit(credential.url).hostname
    if answer.is_success:
        return
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _REPEATABLE:
        raise RemoteUnreachable("lfs", f"{host} answered {status}", retry_after=_ASK_AGAIN)
    cause = "was the repository moved" if status in _MOVED else "is Git LFS enabled for it"
    raise RemoteRefused("lfs", f"{host} answered {status}; {cause}?")


def _lfs_url(credential: GitCredential) -> str:
    return f"{credential.url.rstrip('/').removesuffix('.git')}.git/info/lfs"


def _authorization(credential: GitCredential) -> Mapping[str, str]:
    if credential.password is None:
        return {}
    pair = f"{credential.username or ''}:{credential.password}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _passed_on(action: LfsAction) -> Mapping[str, str]:
    return {
        name: value for name, value in action.header.items() if name.lower() not in _NOT_PASSED_ON
    }
