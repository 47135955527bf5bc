"""Base of the forges with one credential for API, git and webhooks."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeVar

from sandbox_server.domain.errors import ForgeRefused, PullExists
from sandbox_server.domain.tasks.forges import (
    Comment,
    GitAccess,
    GitCredential,
    Labelling,
    PullByPush,
    PullDraft,
    PullFacts,
    RepositoryFacts,
    Subject,
    SubjectComment,
    Validated,
)
from sandbox_server.forges.connection.answers import validated
from sandbox_server.forges.connection.token_api import TokenApi

_EXISTS = "already exists"
T = TypeVar("T", Labelling, SubjectComment)


class PullModel(Protocol):
    """A pull request as the forge describes it."""

    def facts(self) -> PullFacts: ...


@dataclass(frozen=True, kw_only=True)
class PullDialect:
    """How a forge names pull requests and their fields. A draft is one by its title."""

    model: type[PullModel]
    noun: str
    head: str
    base: str
    body: str
    draft: str
    update: str
    """The method that changes one."""
    closed: Mapping[str, str]
    """The change that closes one."""

    def titled(self, title: str, *, draft: bool) -> str:
        return f"{self.draft}{title}" if draft else title

    def new(self, draft: PullDraft) -> Mapping[str, str]:
        return {
            self.head: draft.head_ref,
            self.base: draft.base_ref,
            "title": self.titled(draft.title, draft=draft.draft),
            self.body: draft.body,
        }

    def changed(
        self,
        current: PullFacts,
        *,
        title: str | None,
        body: str | None,
        draft: bool | None,
        closed: bool,
    ) -> Mapping[str, str]:
        changes = {} if body is None else {self.body: body}
        if title is not None or draft is not None:
            plain = current.title.removeprefix(self.draft) if title is None else title
            changes["title"] = self.titled(plain, draft=current.draft if draft is None else draft)
        return {**changes, **(self.closed if closed else {})}


class OneCredential:
    """Git with the same credential for all repositories and purposes."""

    def __init__(self, git_url: str, *, username: str | None, password: str | None) -> None:
        self._git_url = git_url.rstrip("/")
        self._username = username
        self._password = password

    async def git_credential(self, repository: RepositoryFacts, access: GitAccess) -> GitCredential:
        del access
        return GitCredential(
            url=self._url_of(repository.full_name),
            username=None if self._password is None else self._username,
            password=self._password,
        )

    async def refuse_credential(self, repository: RepositoryFacts, access: GitAccess) -> None:
        """There is no other credential to take."""

    def _url_of(self, full_name: str) -> str:
        return f"{self._git_url}/{full_name}.git"


class TokenForge(OneCredential):
    """A forge with a REST API and one token. What differs is where things are and how they are named."""

    _dialect: ClassVar[PullDialect]

    def __init__(self, api: TokenApi, git_url: str, *, username: str, token: str) -> None:
        super().__init__(git_url, username=username, password=token)
        self._api = api

    @abstractmethod
    def _pulls(self, repository: RepositoryFacts, number: int | None = None) -> str:
        """Return the path of the pull requests, or of one."""

    @abstractmethod
    async def list_comments(
        self,
        repository: RepositoryFacts,
        number: int,
        *,
        on: Subject = Subject.PULL,
        since: datetime | None = None,
    ) -> Sequence[Comment]: ...

    def pull_by_push(self, _draft: PullDraft) -> PullByPush | None:
        return None

    async def open_pull(self, repository: RepositoryFacts, draft: PullDraft) -> PullFacts:
        about = f"{self._dialect.noun} of {draft.head_ref}"
        with telling_of_an_existing_pull():
            answer = await self._api.write(
                "POST", self._pulls(repository), self._dialect.new(draft), about=about
            )
        return answer.read(self._dialect.model).facts()

    async def get_pull(
        self, repository: RepositoryFacts, number: int, *, validator: str | None = None
    ) -> Validated[PullFacts]:
        about = f"{self._dialect.noun} {number}"
        answer = await self._api.get(
            self._pulls(repository, number), about=about, validator=validator
        )
        return validated(answer, validator, lambda given: given.read(self._dialect.model).facts())

    async def update_pull(
        self,
        repository: RepositoryFacts,
        number: int,
        *,
        title: str | None = None,
        body: str | None = None,
        draft: bool | None = None,
        closed: bool = False,
    ) -> PullFacts:
        about = f"{self._dialect.noun} {number}"
        answer = await self._api.get(self._pulls(repository, number), about=about)
        current = answer.read(self._dialect.model).facts()
        changes = self._dialect.changed(current, title=title, body=body, draft=draft, closed=closed)
        return await self._change_pull(repository, number, changes) if changes else current

    async def find_comment(
        self,
        repository: RepositoryFacts,
        number: int,
        marker: str,
        *,
        on: Subject = Subject.PULL,
    ) -> Comment | None:
        comments = await self.list_comments(repository, number, on=on)
        return next((each for each in reversed(comments) if marker in each.body), None)

    async def _change_pull(
        self, repository: RepositoryFacts, number: int, changes: Mapping[str, Any]
    ) -> PullFacts:
        about, path = f"{self._dialect.noun} {number}", self._pulls(repository, number)
        answer = await self._api.write(self._dialect.update, path, changes, about=about)
        return answer.read(self._dialect.model).facts()


@contextmanager
def telling_of_an_existing_pull() -> Iterator[None]:
    """Raise `PullExists` where a forge refuses a second pull request of a branch."""
    try:
        yield
    except ForgeRefused as error:
        if _EXISTS in error.reason:
            raise PullExists(error.forge, error.reason) from None
        raise
