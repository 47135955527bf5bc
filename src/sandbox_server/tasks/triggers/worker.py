import json
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Repository, WebhookDelivery
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import ForgeError, ForgeNotFound
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.delivery_outcomes import NO_REPOSITORY, NOT_OURS
from sandbox_server.domain.tasks.forges import DeliveryKind
from sandbox_server.forges.deliveries import Deliveries
from sandbox_server.jobs.kinds import PULL_REQUEST, REPOSITORY
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.repositories.prepared import refresh
from sandbox_server.repositories.service import ForgeDirectory, Repositories
from sandbox_server.tasks.following.repository import FollowedPullRepository
from sandbox_server.tasks.forge_failures import repeat_at
from sandbox_server.tasks.service import Tasks
from sandbox_server.tasks.triggers.ci_fixes import CiFixes
from sandbox_server.tasks.triggers.issues import IssueTriggers
from sandbox_server.tasks.triggers.payloads import (
    Payload,
    added_labels,
    failed_branch,
    late_label_at,
    read_comment,
)
from sandbox_server.tasks.triggers.starting import TaskStarter
from sandbox_server.tasks.triggers.trigger import Result, Trigger

_COMMENTS = frozenset({DeliveryKind.COMMENT, DeliveryKind.REVIEW, DeliveryKind.REVIEW_COMMENT})
_WRITTEN = frozenset({"created", "create", "note", "submitted"})
_GIVE_UP_AFTER = timedelta(hours=24)
_HEADS = "refs/heads/"


class DeliveryWorker:
    """Processes stored deliveries: wakes the jobs of pull requests and mirrors, and starts tasks."""

    def __init__(
        self,
        sessions: Sessions,
        deliveries: Deliveries,
        forges: ForgeDirectory,
        repositories: Repositories,
        tasks: Tasks,
    ) -> None:
        self._sessions = sessions
        self._deliveries = deliveries
        self._forges = forges
        self._repositories = repositories
        starter = TaskStarter(sessions, repositories, tasks)
        self._issues = IssueTriggers(sessions, starter)
        self._ci_fixes = CiFixes(sessions, starter)

    async def work(self, job: LeasedJob) -> datetime | None:
        """Process one delivery; returns when to look again while its checks are running."""
        found = await self._deliveries.find_open(job.subject)
        result = None if found is None else await self._process(*found)
        if result is not None and result.look_at is not None:
            await self._deliveries.note(job.subject, result.outcome)
            return result.look_at
        await self._deliveries.finish(job.subject, None if result is None else result.outcome)
        return None

    async def _process(self, row: WebhookDelivery, repository: Repository | None) -> Result:
        if row.repository is None:
            return Result(NO_REPOSITORY)
        if repository is None:
            return Result(NOT_OURS)
        if row.repository_name not in {None, repository.full_name}:
            repository = await self._repositories.rename(repository, row.repository_name)
        try:
            return await self._dispatch(row, repository)
        except ForgeNotFound as error:
            return Result(f"Failed: {error}")
        except ForgeError as error:
            return await self._after_failure(row, error)

    async def _after_failure(self, row: WebhookDelivery, error: ForgeError) -> Result:
        now = await self._now()
        until = repeat_at(error, now=now)
        if until is None or now - row.received_at > _GIVE_UP_AFTER:
            return Result(f"Failed: {error}")
        return Result(f"Will be repeated: {error}", until)

    async def _dispatch(self, row: WebhookDelivery, repository: Repository) -> Result:
        kind, payload = DeliveryKind(row.kind), _payload_of(row)
        if kind in _COMMENTS:
            return await self._comment(row, repository, payload)
        match kind:
            case DeliveryKind.PULL:
                woken = await self._wake_numbered(row, repository)
                return woken or Result("Ignored: the pull request belongs to no task that is open.")
            case DeliveryKind.ISSUE:
                labels = added_labels(payload, row.action)
                trigger, late_at = await self._trigger(row, repository), late_label_at(payload)
                return await self._issues.label(trigger, labels, late_at=late_at)
            case DeliveryKind.CHECK:
                return await self._check(row, repository, payload)
            case DeliveryKind.PUSH:
                return await self._pushed(row, repository)
        return Result("Ignored: nothing to do for this kind.")

    async def _comment(
        self, row: WebhookDelivery, repository: Repository, payload: Payload
    ) -> Result:
        comment = read_comment(payload)
        is_on_pull = row.kind != DeliveryKind.COMMENT or (
            comment is not None and comment.is_on_pull
        )
        if is_on_pull and (woken := await self._wake_numbered(row, repository)):
            return woken
        if comment is None or row.action not in _WRITTEN:
            return Result("Ignored: not a new comment.")
        trigger = await self._trigger(row, repository)
        if is_on_pull:
            return await self._issues.mention_on_pull(trigger, comment)
        return await self._issues.mention(trigger, comment)

    async def _check(
        self, row: WebhookDelivery, repository: Repository, payload: Payload
    ) -> Result:
        async with without_transaction(self._sessions) as session:
            found = await FollowedPullRepository(session).list_numbers(
                repository.id, sha=row.subject or ""
            )
            await _wake(session, repository, found)
        if found:
            return _woken(found)
        branch = failed_branch(payload)
        if branch is None:
            return Result("Ignored: no failure of a branch.")
        return await self._ci_fixes.start(await self._trigger(row, repository), branch)

    async def _pushed(self, row: WebhookDelivery, repository: Repository) -> Result:
        branch = (row.subject or "").removeprefix(_HEADS)
        async with self._sessions.begin() as session:
            await JobRepository(session).wake(REPOSITORY, repository.id)
            if branch == repository.default_branch:
                await refresh(session, repository.id)
            found = await FollowedPullRepository(session).list_numbers(repository.id, ref=branch)
            await _wake(session, repository, found)
        return _woken(found) if found else Result("The mirror will be updated.")

    async def _wake_numbered(self, row: WebhookDelivery, repository: Repository) -> Result | None:
        """Wake the job of a pull request; None if it belongs to no task that is open."""
        if row.subject is None or not row.subject.isdecimal():
            return None
        number = int(row.subject)
        async with without_transaction(self._sessions) as session:
            if not await FollowedPullRepository(session).is_of_open_task(repository.id, number):
                return None
            await _wake(session, repository, [number])
        return _woken([number])

    async def _trigger(self, row: WebhookDelivery, repository: Repository) -> Trigger:
        forge = await self._forges.find_row(row.forge_id)
        if forge is None:
            raise ForgeNotFound(row.forge_id)
        adapter = await self._forges.adapter(row.forge_id)
        return Trigger(row, repository, forge, adapter, await self._now())

    async def _now(self) -> datetime:
        async with without_transaction(self._sessions) as session:
            now: datetime = (await session.execute(select(func.clock_timestamp()))).scalar_one()
        return now


async def _wake(session: AsyncSession, repository: Repository, numbers: Any) -> None:
    for number in numbers:
        await JobRepository(session).due(PULL_REQUEST, f"{repository.id}/{number}")


def _woken(numbers: Any) -> Result:
    listed = ", ".join(f"#{number}" for number in numbers)
    return Result(f"Pull request {listed} will be read.")


def _payload_of(row: WebhookDelivery) -> Payload:
    """Parse the stored body; one that was too large to store has no fields."""
    if row.body is None:
        return {}
    document = json.loads(row.body)
    return document if isinstance(document, dict) else {}
