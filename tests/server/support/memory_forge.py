"""A forge in memory, behind the protocol of adapters: what tests put there is what the server finds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import select

from sandbox_server.db.models import Forge, Tenant
from sandbox_server.db.session import Sessions
from sandbox_server.domain.errors import (
    ForgeError,
    ForgeNotFound,
    ForgeResourceNotFound,
    ForgeUnavailable,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import (
    CheckConclusion,
    CheckFacts,
    Comment,
    Labelling,
    PullFacts,
    RepositoryFacts,
    Review,
    ReviewComment,
    Subject,
    SubjectComment,
    Validated,
)

T = TypeVar("T")

BOT = "agent[bot]"


def widgets(**fields: Any) -> RepositoryFacts:
    plain = RepositoryFacts(
        external_id="1001",
        full_name="acme/widgets",
        default_branch="main",
        private=True,
        url="https://forge.example/acme/widgets",
        size_bytes=4096,
        permissions=frozenset({"pull", "push"}),
    )
    return replace(plain, **fields)


@dataclass
class MemoryForge:
    """One forge and its adapter. Old names of repositories lead to the present ones, as at GitHub."""

    repositories: dict[str, RepositoryFacts] = field(
        default_factory=lambda: {"acme/widgets": widgets()}
    )
    asked: list[tuple[str, ...]] = field(default_factory=list)
    written: list[tuple[str, str]] = field(default_factory=list)
    clock: datetime = field(default_factory=lambda: datetime.now(UTC) - timedelta(hours=1))
    pulls: dict[int, PullFacts] = field(default_factory=dict)
    checks: dict[str, list[CheckFacts]] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    """How often a check was rerun, by name."""
    comments: dict[int, list[Comment]] = field(default_factory=dict)
    reviews: dict[int, list[Review]] = field(default_factory=dict)
    labellings: list[Labelling] = field(default_factory=list)
    longest_list: int | None = None
    """Of comments, for one look."""
    writers: set[str] = field(default_factory=lambda: {"alice", "bob"})
    answer_lost: bool = False
    """The next write is done, but its answer does not arrive."""
    refusal: ForgeError | None = None
    write_refusal: ForgeError | None = None

    def refuse_writes(self, error: ForgeError) -> None:
        self.write_refusal = error

    def tick(self, duration: timedelta = timedelta(seconds=1)) -> datetime:
        self.clock += duration
        return self.clock

    def change_pull(self, number: int, **fields: Any) -> PullFacts:
        """Change a pull request, as people or the forge do."""
        self.pulls[number] = replace(self.pulls[number], updated_at=self.tick(), **fields)
        return self.pulls[number]

    def add_comment(self, number: int, author: str, body: str, *, age: timedelta) -> Comment:
        """Have somebody write a comment `age` ago."""
        made = Comment(
            id=new_id(),
            author=author,
            body=body,
            at=datetime.now(UTC) - age,
            author_is_bot=author.endswith("[bot]"),
        )
        self.comments.setdefault(number, []).append(made)
        self._touch(number, made.at)
        return made

    def add_review(
        self,
        number: int,
        author: str,
        body: str = "",
        *,
        state: str = "commented",
        lines: Sequence[str] = (),
        age: timedelta = timedelta(),
    ) -> Review:
        """Have somebody submit a review with comments on lines."""
        at = datetime.now(UTC) - age
        is_bot = author.endswith("[bot]")
        comments = [
            ReviewComment(
                id=new_id(),
                author=author,
                body=line,
                at=at,
                author_is_bot=is_bot,
                thread_id=new_id(),
                path="src/widget.py",
                line=3,
                hunk="@@ -1 +1 @@",
            )
            for line in lines
        ]
        made = Review(
            id=new_id(),
            author=author,
            state=state,
            body=body,
            at=at,
            author_is_bot=is_bot,
            comments=comments,
        )
        self.reviews.setdefault(number, []).append(made)
        self._touch(number, at)
        return made

    def set_checks(self, sha: str, **conclusions: str | None) -> None:
        """Set the checks of a commit by name; None: still running."""
        self.checks[sha] = [
            CheckFacts(
                external_id=f"{sha}/{name}{self.attempts.get(name, '')}",
                name=name,
                origin="check-run",
                is_done=conclusion is not None,
                conclusion=None if conclusion is None else CheckConclusion(conclusion),
                url=f"https://forge.example/checks/{name}",
            )
            for name, conclusion in conclusions.items()
        ]

    async def find_repository(self, full_name: str) -> RepositoryFacts:
        self.asked.append(("find_repository", full_name))
        if full_name not in self.repositories:
            raise ForgeResourceNotFound("github", f"Repository {full_name}")
        return self.repositories[full_name]

    async def get_pull(
        self, repository: RepositoryFacts, number: int, *, validator: str | None = None
    ) -> Validated[PullFacts]:
        self._ask("get_pull", repository)
        facts = self.pulls[number]
        current = str(hash(facts.updated_at))
        return Validated(value=None if validator == current else facts, validator=current)

    async def update_pull(
        self, repository: RepositoryFacts, number: int, *, draft: bool | None = None
    ) -> PullFacts:
        self._write("draft", str(draft))
        changed = self.change_pull(number, draft=draft)
        self._answer()
        return changed

    async def list_checks(
        self, repository: RepositoryFacts, sha: str, *, validator: str | None = None
    ) -> Validated[tuple[CheckFacts, ...]]:
        self._ask("list_checks", repository)
        facts = tuple(self.checks.get(sha, ()))
        current = str(hash(facts))
        return Validated(value=None if validator == current else facts, validator=current)

    async def read_check_log(
        self, repository: RepositoryFacts, check: CheckFacts, *, max_bytes: int
    ) -> bytes:
        self._ask("read_check_log", repository)
        return self.logs.get(check.name, b"")[-max_bytes:]

    async def rerun_checks(self, repository: RepositoryFacts, checks: Sequence[CheckFacts]) -> None:
        self._write("rerun", ",".join(each.name for each in checks))
        for check in checks:
            self.attempts[check.name] = self.attempts.get(check.name, 0) + 1
        self._answer()

    async def list_comments(
        self,
        repository: RepositoryFacts,
        number: int,
        *,
        on: Subject = Subject.PULL,
        since: datetime | None = None,
    ) -> Sequence[Comment]:
        self._ask("list_comments", repository)
        found = self.comments.get(number, [])
        return [one for one in found if since is None or one.at >= since]

    async def list_reviews(self, repository: RepositoryFacts, number: int) -> Sequence[Review]:
        self._ask("list_reviews", repository)
        return [replace(one, comments=()) for one in self.reviews.get(number, [])]

    async def get_review(self, repository: RepositoryFacts, number: int, review_id: str) -> Review:
        self._ask("get_review", repository)
        return next(one for one in self.reviews[number] if one.id == review_id)

    async def find_comment(
        self,
        repository: RepositoryFacts,
        number: int,
        marker: str,
        *,
        on: Subject = Subject.PULL,
    ) -> Comment | None:
        self._ask("find_comment", repository)
        found = [one for one in self.comments.get(number, []) if marker in one.body]
        return found[-1] if found else None

    async def comment(
        self, repository: RepositoryFacts, number: int, body: str, *, on: Subject = Subject.PULL
    ) -> Comment:
        self._write("comment", body)
        made = Comment(id=new_id(), author=BOT, body=body, at=datetime.now(UTC), author_is_bot=True)
        self.comments.setdefault(number, []).append(made)
        self._answer()
        return made

    def label(self, number: int, label: str, actor: str, *, age: timedelta) -> None:
        """Have somebody add a label to an issue `age` ago."""
        at = datetime.now(UTC) - age
        self.labellings.append(Labelling(number=number, label=label, actor=actor, at=at))

    async def list_labellings(
        self,
        repository: RepositoryFacts,
        label: str,
        *,
        since: datetime,
        validator: str | None = None,
    ) -> Validated[tuple[Labelling, ...]]:
        self._ask("list_labellings", repository)
        found = (each for each in self.labellings if each.label == label)
        return _validated(tuple(each for each in found if each.at >= since), validator)

    async def list_new_comments(
        self, repository: RepositoryFacts, *, since: datetime, validator: str | None = None
    ) -> Validated[tuple[SubjectComment, ...]]:
        self._ask("list_new_comments", repository)
        found = [
            SubjectComment(**vars(each), number=number, is_on_pull=number in self.pulls)
            for number, comments in self.comments.items()
            for each in comments
        ]
        new = sorted((each for each in found if each.at >= since), key=lambda each: each.at)
        if self.longest_list is not None and len(new) > self.longest_list:
            first = tuple(new[: self.longest_list])
            return Validated(value=first, validator=None, read_until=first[-1].at)
        return _validated(tuple(new), validator)

    async def find_pull(self, repository: RepositoryFacts, head_ref: str) -> PullFacts | None:
        self._ask("find_pull", repository)
        own = [each for each in self.pulls.values() if each.head_ref == head_ref]
        return own[-1] if own else None

    async def comment_on_commit(self, repository: RepositoryFacts, sha: str, body: str) -> Comment:
        self._write(f"comment on {sha}", body)
        made = Comment(id=new_id(), author=BOT, body=body, at=datetime.now(UTC), author_is_bot=True)
        self.comments.setdefault(-1, []).append(made)
        self._answer()
        return made

    async def find_commit_comment(
        self, repository: RepositoryFacts, sha: str, marker: str
    ) -> Comment | None:
        return await self.find_comment(repository, -1, marker)

    async def edit_comment(
        self, repository: RepositoryFacts, comment_id: str, body: str
    ) -> Comment:
        self._write("edit", body)
        for listed in self.comments.values():
            for index, one in enumerate(listed):
                if one.id == comment_id:
                    listed[index] = replace(one, body=body)
                    self._answer()
                    return listed[index]
        raise ForgeResourceNotFound("github", f"Comment {comment_id}")

    async def reply_to_review(
        self, repository: RepositoryFacts, number: int, thread_id: str, body: str
    ) -> Comment:
        self._write(f"reply to {thread_id}", body)
        review = self.add_review(number, BOT, lines=[body])
        self._answer()
        return review.comments[0]

    async def add_labels(
        self,
        repository: RepositoryFacts,
        number: int,
        labels: Collection[str],
        *,
        on: Subject = Subject.PULL,
    ) -> None:
        self._write("label", ",".join(labels))

    async def request_reviewers(
        self, repository: RepositoryFacts, number: int, reviewers: Collection[str]
    ) -> None:
        self._write("reviewers", ",".join(reviewers))

    async def may_write(self, repository: RepositoryFacts, login: str) -> bool:
        self.asked.append(("may_write", login))
        return login in self.writers

    def _ask(self, call: str, repository: RepositoryFacts) -> None:
        self.asked.append((call, repository.full_name))
        if self.refusal is not None:
            raise self.refusal

    def _write(self, kind: str, body: str) -> None:
        refusal = self.refusal or self.write_refusal
        if refusal is not None:
            raise refusal
        self.written.append((kind, body))

    def _answer(self) -> None:
        if self.answer_lost:
            self.answer_lost = False
            raise ForgeUnavailable("github", "No answer.")

    def _touch(self, number: int, at: datetime) -> None:
        if number in self.pulls and self.pulls[number].updated_at < at:
            self.pulls[number] = replace(self.pulls[number], updated_at=at)


def _validated(found: tuple[T, ...], validator: str | None) -> Validated[tuple[T, ...]]:
    current = str(hash(found))
    return Validated(value=None if validator == current else found, validator=current)


@dataclass
class MemoryForges:
    """Forges of a database, each with an adapter in memory."""

    sessions: Sessions
    adapters: dict[str, MemoryForge] = field(default_factory=dict)

    async def get(self, caller: Any, name: str) -> Forge:
        async with self.sessions() as session:
            found = await session.scalar(
                select(Forge).where(Forge.tenant_id == caller.tenant_id, Forge.name == name)
            )
        if found is None:
            raise ForgeNotFound(name)
        return found

    async def adapter(self, forge_id: str) -> Any:  # no git, no pushes: not all of a ForgeAdapter
        return self.adapters[forge_id]

    async def find_row(self, forge_id: str) -> Forge | None:
        async with self.sessions() as session:
            return await session.get(Forge, forge_id)


async def add_forge(sessions: Sessions, tenant_id: str, *, name: str = "github") -> str:
    row = Forge(
        id=new_id(),
        tenant_id=tenant_id,
        name=name,
        kind="github",
        api_url="https://api.forge.example",
        git_url="https://forge.example",
        auth="none",
        bot_login=BOT,
        bot_id="77",
    )
    async with sessions.begin() as session:
        session.add(row)
    return row.id


async def add_tenant(sessions: Sessions) -> str:
    tenant_id = new_id()
    async with sessions.begin() as session:
        session.add(Tenant(id=tenant_id, name=tenant_id, max_running=9, max_queued=9))
    return tenant_id
