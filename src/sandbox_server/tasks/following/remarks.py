"""Reviews and comments of a pull request as messages for the agent."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sandbox_server.db.models import Forge
from sandbox_server.domain.tasks.forges import Comment, RepositoryFacts, Review, ReviewComment
from sandbox_server.domain.tasks.stages import MessageOrigin
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.tasks.markers import is_ours, same_login

GATHERING = timedelta(seconds=30)
"""How long single comments are gathered: people write several."""

_LONGEST_HUNK = 2000


@dataclass(frozen=True)
class Remark:
    """A submitted review or a comment."""

    id: str
    author: str
    at: datetime | None
    body: str
    by_bot: bool
    heading: str
    comments: Sequence[ReviewComment] = ()
    is_submitted: bool = False
    """A review that was submitted as a whole: nothing else of it will follow."""

    @property
    def text(self) -> str:
        return "\n\n".join([self.heading, self.body, *map(_text_of, self.comments)]).strip()


@dataclass(frozen=True, kw_only=True)
class RemarkMessage:
    """A message made of one review, or of the comments that were gathered."""

    origin: MessageOrigin
    origin_ref: str
    text: str
    author: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Gathered:
    messages: Sequence[RemarkMessage]
    look_at: datetime | None
    """When comments that are still being gathered become a message."""


class Listeners:
    """Decides whose words count: users with write permission or on the list; bots only if listed."""

    def __init__(
        self,
        adapter: ForgeAdapter,
        repository: RepositoryFacts,
        forge: Forge,
        *,
        users: Collection[str],
    ) -> None:
        self._adapter = adapter
        self._repository = repository
        self._forge = forge
        self._users = users
        self._known: dict[str, bool] = {}

    def is_own(self, author: str, body: str = "") -> bool:
        return is_ours(self._forge, author=author, body=body)

    async def counts(self, login: str, *, is_bot: bool) -> bool:
        if any(same_login(login, user) for user in self._users):
            return True
        if is_bot:
            return False
        if login not in self._known:
            self._known[login] = await self._adapter.may_write(self._repository, login)
        return self._known[login]


async def read_remarks(
    adapter: ForgeAdapter,
    repository: RepositoryFacts,
    number: int,
    *,
    since: datetime | None,
    handled: Collection[str],
    listeners: Listeners,
) -> list[Remark]:
    """Read the reviews and comments since an instant that count and were not handled, oldest first."""
    found = [
        *[
            _of_comment(each)
            for each in await adapter.list_comments(repository, number, since=since)
        ],
        *[
            _of_review(each)
            for each in await adapter.list_reviews(repository, number)
            if since is None or each.at is None or each.at >= since
        ],
    ]
    counting = [
        each
        for each in found
        if each.id not in handled
        and not listeners.is_own(each.author, each.body)
        and await listeners.counts(each.author, is_bot=each.by_bot)
    ]
    complete = [await _complete(adapter, repository, number, each) for each in counting]
    heard = [each for each in complete if each.body or each.comments]
    return sorted(heard, key=lambda each: (each.at is not None, each.at or 0, each.id))


def gather(remarks: Sequence[Remark], *, now: datetime) -> Gathered:
    """Make a message of each submitted review, and one of all single comments once no more follow."""
    reviews = [_message(MessageOrigin.REVIEW, [each]) for each in remarks if each.is_submitted]
    single = [each for each in remarks if not each.is_submitted]
    last = max((each.at for each in single if each.at is not None), default=None)
    if last is not None and now - last < GATHERING:
        return Gathered(reviews, last + GATHERING)
    return Gathered(
        [*reviews, *([_message(MessageOrigin.COMMENT, single)] if single else [])], None
    )


def _message(origin: MessageOrigin, remarks: Sequence[Remark]) -> RemarkMessage:
    authors = list(dict.fromkeys(each.author for each in remarks))
    return RemarkMessage(
        origin=origin,
        origin_ref=remarks[0].id,
        text="\n\n---\n\n".join(each.text for each in remarks),
        author=", ".join(authors),
        data={
            "remarks": [each.id for each in remarks],
            "threads": _threads(remarks),
            "mentions": [each.author for each in remarks if not each.comments],
            "by_bot": all(each.by_bot for each in remarks),
        },
    )


def _threads(remarks: Iterable[Remark]) -> list[str]:
    threads = (comment.thread_id for each in remarks for comment in each.comments)
    return list(dict.fromkeys(threads))


async def _complete(
    adapter: ForgeAdapter, repository: RepositoryFacts, number: int, remark: Remark
) -> Remark:
    if not remark.id.startswith("review/"):
        return remark
    review = await adapter.get_review(repository, number, remark.id.removeprefix("review/"))
    return _of_review(review)


def _of_comment(comment: Comment) -> Remark:
    return Remark(
        id=f"comment/{comment.id}",
        author=comment.author,
        at=comment.at,
        body=comment.body,
        by_bot=comment.author_is_bot,
        heading=f"Comment by {comment.author}:",
    )


def _of_review(review: Review) -> Remark:
    is_whole = bool(review.body) or review.state != "commented"
    said = review.state.replace("_", " ")
    return Remark(
        id=f"review/{review.id}",
        author=review.author,
        at=review.at,
        body=review.body,
        by_bot=review.author_is_bot,
        heading=f"Review by {review.author} ({said}):",
        comments=review.comments,
        is_submitted=is_whole,
    )


def _text_of(comment: ReviewComment) -> str:
    place = comment.path or "a file"
    if comment.line is not None:
        place = f"{place}, line {comment.line}"
    hunk = f"\n{comment.hunk[-_LONGEST_HUNK:]}\n" if comment.hunk else ""
    return f"On {place}:{hunk}\n{comment.body}"
