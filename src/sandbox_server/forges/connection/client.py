"""One request to a forge: bounded in time and size, never repeated, with errors that say whether a repeat makes sense."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from sandbox_server.domain.errors import ForgeUnavailable
from sandbox_server.forges.connection.answers import Answer
from sandbox_server.forges.connection.budgets import Budgets

_CONNECT_S, _READ_S, _WHOLE_S = 10.0, 30.0, 60.0
_LARGEST_ANSWER = 16 * 2**20
_LARGEST_LOG = 64 * 2**20
_CREDENTIALS = frozenset({"authorization", "private-token"})
_READS = frozenset({"GET", "HEAD"})
_MOVED = frozenset({301, 302, 307, 308})
_MOST_REDIRECTS = 3
_CHUNK = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class ForgeAddress:
    """The API of one forge, as requests to it need it."""

    forge_id: str
    name: str
    api_url: str

    def url_of(self, path: str) -> str:
        """Make a URL of a path below the API; pages of lists are absolute already."""
        return path if "://" in path else f"{self.api_url.rstrip('/')}/{path.lstrip('/')}"


@dataclass(frozen=True, kw_only=True)
class Authorized:
    """Headers that authenticate a request, and whose quota it takes."""

    headers: Mapping[str, str] = field(repr=False)
    account: str = "token"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request. `about` is the subject of the error message."""

    method: str
    path: str
    about: str
    account: str = "token"
    """The owner of the quota that it uses: an installation, or the token."""
    resource: str = "core"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    params: Mapping[str, str | int] = field(default_factory=dict)
    json: Mapping[str, Any] | None = None
    validator: str | None = None

    @property
    def is_write(self) -> bool:
        return self.method not in _READS and self.resource != "mint"

    @property
    def secrets(self) -> Sequence[str]:
        """The credentials among the headers, without their scheme."""
        return [
            value.rpartition(" ")[2]
            for name, value in self.headers.items()
            if name.lower() in _CREDENTIALS
        ]

    def authorized_by(self, authorized: Authorized) -> "Call":
        headers = {**self.headers, **authorized.headers}
        return replace(self, headers=headers, account=authorized.account)


class ForgeClient:
    """Sends requests to forges for all adapters of this process."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets

    async def send(self, address: ForgeAddress, call: Call) -> Answer:
        """Send one request within the limits; the answer may be an error, which `require_success` raises."""
        async with self._budgets.spend(
            address.forge_id,
            address.name,
            account=call.account,
            call=call.resource,
            write=call.is_write,
        ):
            answer = await self._send(address, call)
        await self._budgets.record(
            address.forge_id, account=call.account, limits=answer.limits, reason=answer.message
        )
        return answer

    async def read_end(self, address: ForgeAddress, call: Call, *, max_bytes: int) -> Answer:
        """Read the end of a long text, such as a log, without keeping the rest in memory."""
        return await self._send(address, call, keep_end=max_bytes)

    async def close(self) -> None:
        if "_http" in self.__dict__:
            await self._http.aclose()

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        # Built at the first use: its TLS context takes longer than a request.
        return httpx.AsyncClient(
            timeout=httpx.Timeout(_READ_S, connect=_CONNECT_S),
            follow_redirects=False,
            headers={"User-Agent": "sandbox-server"},
        )

    async def _send(
        self, address: ForgeAddress, call: Call, *, keep_end: int | None = None
    ) -> Answer:
        url = address.url_of(call.path)
        async with _failures_of(address.name, call.about), asyncio.timeout(_WHOLE_S):
            for _ in range(_MOST_REDIRECTS):
                answer = await self._exchange(address, call, url, keep_end)
                location = answer.headers.get("location")
                if answer.status not in _MOVED or call.is_write or location is None:
                    return answer
                url = urljoin(url, location)
        raise ForgeUnavailable(address.name, f"{call.about}: too many redirects.")

    async def _exchange(
        self, address: ForgeAddress, call: Call, url: str, keep_end: int | None
    ) -> Answer:
        is_forge = origin_of(url) == origin_of(address.api_url)
        if not is_forge and urlsplit(url).scheme != "https":
            raise ForgeUnavailable(address.name, f"{call.about}: redirected to an unsafe address.")
        request = self._http.build_request(
            call.method,
            url,
            params=dict(call.params) or None,
            json=call.json,
            # Logs are kept at other hosts, which must not see the credential.
            headers=_headers(call) if is_forge else {},
        )
        answer = await self._http.send(request, stream=True)
        try:
            body = await _read(answer, address.name, keep_end)
        finally:
            await answer.aclose()
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(
            forge=address.name,
            status=answer.status_code,
            headers=headers,
            body=body,
            secrets=call.secrets,
        )


async def _read(answer: httpx.Response, forge: str, keep_end: int | None) -> bytes:
    body, seen = bytearray(), 0
    async for chunk in answer.aiter_bytes(_CHUNK):
        seen += len(chunk)
        if seen > (_LARGEST_ANSWER if keep_end is None else _LARGEST_LOG):
            raise ForgeUnavailable(forge, "The answer is too large.")
        body += chunk
        if keep_end is not None:
            del body[:-keep_end]
    return bytes(body)


@asynccontextmanager
async def _failures_of(forge: str, about: str) -> AsyncIterator[None]:
    try:
        yield
    except TimeoutError:
        raise ForgeUnavailable(forge, f"{about}: no answer within {_WHOLE_S:.0f} s.") from None
    except httpx.HTTPError as error:
        # Only the kind of failure: the text could repeat what was sent.
        raise ForgeUnavailable(forge, f"{about}: {_explain(error)}.") from None


def _explain(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.ConnectError):
        return "the server cannot connect to the forge; check the forge's address and the network"
    return f"the connection to the forge failed ({type(error).__name__})"


def _headers(call: Call) -> dict[str, str]:
    validator = {} if call.validator is None else {"If-None-Match": call.validator}
    return {**call.headers, **validator}


def origin_of(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
