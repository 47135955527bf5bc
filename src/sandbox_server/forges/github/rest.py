from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from sandbox_server.domain.errors import ForgeCredentialRefused
from sandbox_server.domain.tasks.forges import RepositoryFacts
from sandbox_server.forges.connection.answers import Answer
from sandbox_server.forges.connection.client import (
    Authorized,
    Call,
    ForgeAddress,
    ForgeClient,
)
from sandbox_server.forges.connection.pages import Pages, read_pages
from sandbox_server.forges.github.app_tokens import GithubCredentials

T = TypeVar("T")

PER_PAGE = 100
_MOST_PAGES = 10


class GithubApi:
    """GitHub's REST API, authenticated for one repository at a time."""

    def __init__(
        self, client: ForgeClient, address: ForgeAddress, credentials: GithubCredentials
    ) -> None:
        self.client = client
        self.address = address
        self.credentials = credentials

    async def get(
        self,
        repository: RepositoryFacts,
        path: str,
        *,
        about: str,
        params: Mapping[str, str | int] | None = None,
        validator: str | None = None,
    ) -> Answer:
        call = Call(
            method="GET",
            path=_of(repository, path),
            about=about,
            params=params or {},
            validator=validator,
        )
        return await self.ask(repository, call)

    async def write(
        self,
        repository: RepositoryFacts,
        method: str,
        path: str,
        document: Mapping[str, Any],
        *,
        about: str,
    ) -> Answer:
        call = self.call(repository, method, path, about=about, json=document)
        return await self.ask(repository, call)

    def call(
        self,
        repository: RepositoryFacts,
        method: str,
        path: str,
        *,
        about: str,
        json: Mapping[str, Any] | None = None,
    ) -> Call:
        """Describe a request about a repository."""
        return Call(method=method, path=_of(repository, path), about=about, json=json)

    async def list_all(
        self,
        repository: RepositoryFacts,
        path: str,
        model: type[T],
        *,
        about: str,
        params: Mapping[str, str | int] | None = None,
    ) -> list[T]:
        """List all pages, at most a thousand items."""
        pages = await self.list_pages(repository, path, model, about=about, params=params)
        return pages.items or []

    async def list_pages(
        self,
        repository: RepositoryFacts,
        path: str,
        model: type[T],
        *,
        about: str,
        params: Mapping[str, str | int] | None = None,
        validator: str | None = None,
    ) -> Pages[T]:
        """List all pages, at most a thousand items, unless the first one is unchanged."""
        call = Call(
            method="GET",
            path=_of(repository, path),
            about=about,
            params={"per_page": PER_PAGE, **(params or {})},
            validator=validator,
        )
        ask = partial(self.ask, repository)
        return await read_pages(ask, call, self.address, model, most=_MOST_PAGES)

    async def ask(self, repository: RepositoryFacts, call: Call) -> Answer:
        """Send a request; a minted token that was revoked is minted anew, once."""
        try:
            return await self.send(await self.credentials.authorize(repository), call)
        except ForgeCredentialRefused:
            if not await self.credentials.renew(repository):
                raise
        return await self.send(await self.credentials.authorize(repository), call)

    async def send(self, authorized: Authorized, call: Call) -> Answer:
        answer = await self.client.send(self.address, call.authorized_by(authorized))
        return answer.require_success(about=call.about)


def _of(repository: RepositoryFacts, path: str) -> str:
    return f"/repos/{repository.full_name}{path}"
