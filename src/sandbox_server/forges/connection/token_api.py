from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sandbox_server.forges.connection.answers import Answer
from sandbox_server.forges.connection.client import (
    Authorized,
    Call,
    ForgeAddress,
    ForgeClient,
)
from sandbox_server.forges.connection.pages import Pages, read_pages

T = TypeVar("T")

_MOST_PAGES = 20


class TokenApi:
    """A REST API that is authenticated by one token for everything."""

    def __init__(
        self,
        client: ForgeClient,
        address: ForgeAddress,
        headers: Mapping[str, str],
        *,
        page: Mapping[str, int] | None = None,
    ) -> None:
        self.client = client
        self.address = address
        self._page = page or {}  # the parameter of all lists that says how long a page is
        self._authorized = Authorized(headers=headers)

    async def get(
        self,
        path: str,
        *,
        about: str,
        params: Mapping[str, str | int] | None = None,
        validator: str | None = None,
    ) -> Answer:
        call = Call(method="GET", path=path, about=about, params=params or {}, validator=validator)
        return await self._send(call)

    async def write(
        self, method: str, path: str, document: Mapping[str, Any], *, about: str
    ) -> Answer:
        return await self._send(Call(method=method, path=path, about=about, json=document))

    async def list_all(
        self,
        path: str,
        model: type[T],
        *,
        about: str,
        params: Mapping[str, str | int] | None = None,
    ) -> list[T]:
        """List all pages, at most twenty."""
        return (await self.list_pages(path, model, about=about, params=params)).items or []

    async def list_pages(
        self,
        path: str,
        model: type[T],
        *,
        about: str,
        params: Mapping[str, str | int] | None = None,
        validator: str | None = None,
        is_last: Callable[[T], bool] = lambda _: False,
        most: int = _MOST_PAGES,
    ) -> Pages[T]:
        """List pages up to one with the last item wanted, unless the first one is unchanged."""
        call = Call(
            method="GET",
            path=path,
            about=about,
            params={**self._page, **(params or {})},
            validator=validator,
        )
        return await read_pages(self._send, call, self.address, model, most=most, is_last=is_last)

    async def read_end(self, path: str, *, about: str, max_bytes: int) -> Answer:
        call = Call(method="GET", path=path, about=about).authorized_by(self._authorized)
        return await self.client.read_end(self.address, call, max_bytes=max_bytes)

    async def _send(self, call: Call) -> Answer:
        answer = await self.client.send(self.address, call.authorized_by(self._authorized))
        return answer.require_success(about=call.about)
