"""Finds labels and mentions whose webhooks never arrived: a look at each repository with triggers, once an hour.

What is found is stored as a delivery, which is processed like one of the forge: who may start tasks, what was told before,
and which task is open are decided in one place.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select

from sandbox_server.db.models import Forge, Repository
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import ForgeError, ForgeNotFound, NotSupportedByForge
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.forges import (
    Delivery,
    DeliveryKind,
    Labelling,
    SubjectComment,
    Validated,
)
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.forges.deliveries import Deliveries
from sandbox_server.jobs.kinds import TRIGGER_LOOK
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.repositories.facts import facts_of
from sandbox_server.repositories.service import ForgeDirectory, Repositories
from sandbox_server.tasks.forge_failures import repeat_at
from sandbox_server.tasks.markers import is_ours
from sandbox_server.tasks.triggers.payloads import RECONCILED

log = logging.getLogger(__name__)

_INTERVAL = timedelta(hours=1)
_CLOCKS_DIFFER = timedelta(minutes=5)
_COMMENTS = "comments"
_LABEL = "label/"


class MissedTriggers:
    """Looks for labels and mentions since the last look at a repository."""

    def __init__(
        self,
        sessions: Sessions,
        deliveries: Deliveries,
        forges: ForgeDirectory,
        repositories: Repositories,
    ) -> None:
        self._sessions = sessions
        self._deliveries = deliveries
        self._forges = forges
        self._repositories = repositories

    async def work(self, job: LeasedJob) -> datetime | None:
        """Look at one repository; returns when to look again, None if nothing triggers tasks there."""
        row = await self._repositories.row(job.subject)
        wanted = [] if row.removed_at is not None else _looks_of(row)
        if not wanted:
            async with self._sessions.begin() as session:
                await JobRepository(session).remove(TRIGGER_LOOK, job.subject)
            return None
        now = await self._now()
        try:
            is_complete = await self._look(row, wanted, now=now)
        except (ForgeNotFound, NotSupportedByForge):
            return None
        except ForgeError as error:
            log.warning("missed triggers not read repository=%s error=%s", row.id, error)
            return repeat_at(error, now=now) or now + _INTERVAL
        return now + _INTERVAL if is_complete else now

    async def _look(self, row: Repository, wanted: list[str], *, now: datetime) -> bool:
        """Deliver what is new; returns whether everything was read."""
        forge = await self._forges.find_row(row.forge_id)
        if forge is None:
            raise ForgeNotFound(row.forge_id)
        adapter = await self._forges.adapter(row.forge_id)
        since, is_complete = (now - _CLOCKS_DIFFER).isoformat(), True
        for name in wanted:
            known = row.trigger_looks.get(name)
            # What was there before the trigger was set starts nothing.
            look = {"since": since} if known is None else known
            if known is not None:
                answer = await _read(adapter, row, name, known)
                found = [each for each in answer.value or () if _counts(forge, row, each)]
                for each in found:
                    await self._deliver(row, each)
                if answer.read_until is not None:
                    look, is_complete = {"since": answer.read_until.isoformat()}, False
                elif not answer.value and answer.validator is not None:
                    # As long as nothing changes, the same request costs no quota.
                    look = {**known, "validator": answer.validator}
            await self._repositories.note_look(row.id, name, look)
        return is_complete

    async def _deliver(self, row: Repository, found: Labelling | SubjectComment) -> None:
        document = {"repository": row.external_id, RECONCILED: True, **_document_of(found)}
        body = json.dumps(document, sort_keys=True).encode()
        delivery = replace(
            _delivery_of(found),
            repository_id=row.external_id,
            repository_name=row.full_name,
            subject=str(found.number),
        )
        receipt = await self._deliveries.store(row.forge_id, delivery, body)
        if receipt.is_new:
            log.info("missed trigger found repository=%s subject=%s", row.id, found.number)

    async def _now(self) -> datetime:
        async with without_transaction(self._sessions) as session:
            now: datetime = (await session.execute(select(func.clock_timestamp()))).scalar_one()
        return now


def _looks_of(row: Repository) -> list[str]:
    triggers = RepositorySettings.of(row.settings).triggers
    labels = [f"{_LABEL}{label}" for label in triggers.labels]
    return labels if triggers.mention is None else [*labels, _COMMENTS]


async def _read(
    adapter: ForgeAdapter, row: Repository, name: str, known: Mapping[str, Any]
) -> Validated[tuple[Labelling, ...]] | Validated[tuple[SubjectComment, ...]]:
    facts, since = facts_of(row), datetime.fromisoformat(known["since"])
    validator = known.get("validator")
    if name == _COMMENTS:
        return await adapter.list_new_comments(facts, since=since, validator=validator)
    label = name.removeprefix(_LABEL)
    return await adapter.list_labellings(facts, label, since=since, validator=validator)


def _counts(forge: Forge, row: Repository, found: Labelling | SubjectComment) -> bool:
    """Leave out comments that mention nobody; everything else is decided where deliveries are processed."""
    if isinstance(found, Labelling):
        return True
    word = RepositorySettings.of(row.settings).triggers.mention or ""
    is_own = is_ours(forge, author=found.author, body=found.body)
    return word.lower() in found.body.lower() and not is_own


def _delivery_of(found: Labelling | SubjectComment) -> Delivery:
    if isinstance(found, Labelling):
        return Delivery(
            id="",
            kind=DeliveryKind.ISSUE,
            action="labeled",
            actor=found.actor,
            actor_is_bot=found.actor_is_bot,
        )
    return Delivery(
        id="",
        kind=DeliveryKind.COMMENT,
        action="created",
        actor=found.author,
        actor_is_bot=found.author_is_bot,
    )


def _document_of(found: Labelling | SubjectComment) -> dict[str, Any]:
    """Describe it as a webhook does."""
    if isinstance(found, Labelling):
        issue = {"number": found.number, "updated_at": found.at.isoformat()}
        return {"label": {"name": found.label}, "issue": issue}
    comment_id = found.id.rpartition("/")[2]  # GitLab's names its issue too
    pull: dict[str, Any] = {"pull_request": {}} if found.is_on_pull else {}
    return {
        "comment": {"id": comment_id, "body": found.body, "html_url": found.url},
        "issue": {"number": found.number, **pull},
    }
