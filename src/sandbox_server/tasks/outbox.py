import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import ForgeError, ForgeNotFound, ForgeResourceNotFound
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.forges import CheckFacts, Comment, PullLifecycle, Subject
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.jobs.kinds import PULL_REQUEST
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.repositories.facts import facts_of
from sandbox_server.repositories.service import ForgeDirectory
from sandbox_server.tasks.forge_failures import repeat_at
from sandbox_server.tasks.history_repository import TaskHistoryRepository, facts_of_check
from sandbox_server.tasks.markers import marked, marker, same_login
from sandbox_server.tasks.outbox_repository import Outbox, PendingWrite

log = logging.getLogger(__name__)

_MOST_WRITES = 40
"""Per run of the job: with a second between writes, its lease stays short."""
_GIVE_UP_AFTER = timedelta(hours=24)
_REVIEWS_SEARCHED = 20
_OF_STATE = frozenset({"pull", "rerun"})


class OutboxWorker:
    """Does the writes of a forge, one after the other.

    Before a write whose attempt may have succeeded, it looks for the result by its marker: a crash repeats nothing.
    """

    def __init__(self, sessions: Sessions, forges: ForgeDirectory) -> None:
        self._sessions = sessions
        self._forges = forges

    async def work(self, job: LeasedJob) -> datetime | None:
        """Do the writes that are due; returns when to continue after a limit of the forge."""
        for _ in range(_MOST_WRITES):
            async with without_transaction(self._sessions) as session:
                pending = await Outbox(session).find_next(job.subject)
            if pending is None:
                return None
            until = await self._attempt(pending)
            if until is not None:
                return until
        return await self._now()

    async def _attempt(self, pending: PendingWrite) -> datetime | None:
        try:
            await self._write(pending)
        except ForgeNotFound as error:
            await self._give_up(pending, str(error))
        except ForgeError as error:
            now = await self._now()
            until = repeat_at(error, now=now)
            if until is not None and now - pending.row.created_at < _GIVE_UP_AFTER:
                return until
            await self._give_up(pending, str(error))
        return None

    async def _give_up(self, pending: PendingWrite, reason: str) -> None:
        row = pending.row
        log.warning("forge write refused kind=%s task=%s reason=%s", row.kind, row.task_id, reason)
        async with self._sessions.begin() as session:
            await Outbox(session).give_up(row, reason)
            await _wake_pull(session, pending)

    async def _write(self, pending: PendingWrite) -> None:
        adapter = await self._forges.adapter(pending.forge.id)
        write = _Write(adapter, pending, await self._list_checks(pending))
        result = await write.find() if pending.row.attempted_at is not None else None
        if result is None:
            async with self._sessions.begin() as session:
                await Outbox(session).mark_attempted(pending.row)
            result = await write.do()
        async with self._sessions.begin() as session:
            await Outbox(session).finish(pending.row, result)
            await _wake_pull(session, pending)

    async def _list_checks(self, pending: PendingWrite) -> Sequence[CheckFacts]:
        """List the checks that a rerun is about."""
        payload = pending.row.payload
        async with without_transaction(self._sessions) as session:
            found = await TaskHistoryRepository(session).list_checks(
                pending.repository.id, payload.get("sha", "")
            )
        wanted = payload.get("checks", ())
        return [facts_of_check(each) for each in found if each.external_id in wanted]

    async def _now(self) -> datetime:
        async with without_transaction(self._sessions) as session:
            now: datetime = (await session.execute(select(func.clock_timestamp()))).scalar_one()
        return now


class _Write:
    """One write through an adapter."""

    def __init__(
        self, adapter: ForgeAdapter, pending: PendingWrite, checks: Sequence[CheckFacts]
    ) -> None:
        self._adapter = adapter
        self._row = pending.row
        self._forge = pending.forge
        self._repository = facts_of(pending.repository)
        self._checks = checks
        self._payload: dict[str, Any] = pending.row.payload

    @property
    def number(self) -> int:
        return int(self._payload["number"])

    @property
    def _body(self) -> str:
        return marked(self._payload["body"], self._row.id)

    @property
    def _on(self) -> Subject:
        return Subject(self._payload.get("on", Subject.PULL))

    async def find(self) -> dict[str, Any] | None:
        """Find what an earlier attempt has written."""
        match self._row.kind:
            case "comment" if not self._row.result:
                found = await self._find_comment()
            case "reply":
                found = await self._find_reply()
            case _:
                return None
        # Anybody can copy a marker; only a comment of our account is ours.
        return None if found is None or not self._is_own(found) else _result(found)

    async def do(self) -> dict[str, Any]:
        payload, repository = self._payload, self._repository
        match self._row.kind:
            case "comment":
                return _result(await self._comment())
            case "reply":
                thread = payload["thread_id"]
                return _result(
                    await self._adapter.reply_to_review(repository, self.number, thread, self._body)
                )
            case "label":
                labels = payload["labels"]
                await self._adapter.add_labels(repository, self.number, labels, on=self._on)
            case "pull":
                return {"ready": await self._make_ready()}
            case "rerun":
                if self._checks:  # else somebody has rerun them meanwhile
                    await self._adapter.rerun_checks(repository, self._checks)
            case "reviewers":
                reviewers = payload["reviewers"]
                await self._adapter.request_reviewers(repository, self.number, reviewers)
        return {}

    async def _comment(self) -> Comment:
        known, repository = self._row.result.get("comment_id"), self._repository
        if known is not None:
            with suppress(ForgeResourceNotFound):  # somebody has deleted it: write another one
                return await self._adapter.edit_comment(repository, known, self._body)
        if "number" not in self._payload:
            return await self._adapter.comment_on_commit(
                repository, self._payload["sha"], self._body
            )
        return await self._adapter.comment(repository, self.number, self._body, on=self._on)

    async def _find_comment(self) -> Comment | None:
        mark = marker(self._row.id)
        if "number" in self._payload:
            return await self._adapter.find_comment(
                self._repository, self.number, mark, on=self._on
            )
        sha = self._payload["sha"]
        return await self._adapter.find_commit_comment(self._repository, sha, mark)

    async def _make_ready(self) -> bool:
        """Make a draft ready unless its head is another one by now; one that is ready stays as it is."""
        pull = (await self._adapter.get_pull(self._repository, self.number)).value
        if pull is None or pull.lifecycle is not PullLifecycle.OPEN:
            return False
        if pull.head_sha != self._payload["sha"]:
            return False
        if pull.draft:
            await self._adapter.update_pull(self._repository, self.number, draft=False)
        return True

    async def _find_reply(self) -> Comment | None:
        reviews = await self._adapter.list_reviews(self._repository, self.number)
        own = [one for one in reviews if self._is_own_login(one.author)]
        for review in own[-_REVIEWS_SEARCHED:]:
            found = await self._adapter.get_review(self._repository, self.number, review.id)
            for comment in found.comments:
                if marker(self._row.id) in comment.body:
                    return comment
        return None

    def _is_own(self, comment: Comment) -> bool:
        return self._is_own_login(comment.author)

    def _is_own_login(self, login: str) -> bool:
        return self._forge.bot_login is None or same_login(login, self._forge.bot_login)


async def _wake_pull(session: AsyncSession, pending: PendingWrite) -> None:
    """Have a pull request looked at whose state has changed by a write."""
    row = pending.row
    if row.kind in _OF_STATE and "number" in row.payload:
        subject = f"{pending.repository.id}/{row.payload['number']}"
        await JobRepository(session).wake(PULL_REQUEST, subject)


def _result(comment: Comment) -> dict[str, Any]:
    return {"comment_id": comment.id, "url": comment.url}
