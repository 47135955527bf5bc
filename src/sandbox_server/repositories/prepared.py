"""Prepared snapshots of repositories: the default branch checked out, its setup run.

`Repository.preparation` is null, `{}` once a preparation is requested, or a `Preparation` that is under way:

    requested -- begin -> sandbox -> checkout -> setup -> snapshot -- finish -> ended -- close -> null
                                 └-------- fail ---------------------^
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Repository
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import PreparedSnapshot
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.jobs.kinds import PREPARATION
from sandbox_server.jobs.repository import JobRepository

_HOME = "/home/user"
_WITH_AGENTS = "agent-full"
_REFRESH_AFTER = timedelta(hours=1)
_LONGEST_ERROR = 4000


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """A preparation under way, with the settings that it began with."""

    id: str
    template: str | None
    setup: str | None
    setup_timeout_s: float
    directory: str
    capabilities: Sequence[str] = ()
    attempts: int = 1
    sha: str | None = None
    ended: bool = False
    again: bool = False
    """Another one was requested meanwhile, or this one was interrupted."""
    unneeded: Sequence[str] = ()
    """Snapshots to delete once it has ended."""


def directory_of(row: Repository) -> str:
    """Choose the directory of a repository's checkouts."""
    return f"{_HOME}/{row.full_name.rpartition('/')[2]}"


def template_of(settings: RepositorySettings, *, has_agent: bool) -> str | None:
    """Choose the template of a repository's sandboxes; None: by its capabilities, else the tenant's default."""
    by_default = _WITH_AGENTS if has_agent and not settings.capabilities else None
    return settings.template or by_default


def find_prepared(row: Repository, *, setup: str | None, directory: str) -> PreparedSnapshot | None:
    """Find the snapshot to start from; one that was made with another setup does not count."""
    made = row.prepared_from
    if row.prepared_snapshot is None or made is None:
        return None
    if (made["setup"], made["directory"]) != (setup, directory):
        return None
    return PreparedSnapshot(snapshot_id=row.prepared_snapshot, template=made["template"])


def underway(row: Repository) -> Preparation | None:
    return Preparation(**row.preparation) if row.preparation else None


class RepositoryPreparations:
    """How far the preparations of repositories are; each change is one commit."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def find(self, repository_id: str) -> tuple[Repository | None, datetime]:
        """Find a repository, removed or not, with the database's clock."""
        async with without_transaction(self._sessions) as session:
            row = await session.get(Repository, repository_id)
            now = await session.scalar(select(func.clock_timestamp()))
        assert now is not None
        return row, now

    async def begin(self, repository_id: str) -> None:
        """Begin a requested preparation with the settings of now."""
        async with self._sessions.begin() as session:
            row = await _lock(session, repository_id)
            if row.preparation == {}:
                row.preparation = asdict(_new(row))

    async def note_checkout(self, repository_id: str, seen: Preparation, *, sha: str) -> None:
        async with self._sessions.begin() as session:
            _change(await _lock(session, repository_id), seen, sha=sha)

    async def finish(
        self, repository_id: str, seen: Preparation, *, snapshot_id: str, template: str
    ) -> None:
        """Let sandboxes start from the new snapshot; the old one is unneeded."""
        async with self._sessions.begin() as session:
            row = await _lock(session, repository_id)
            old = row.prepared_snapshot
            if _change(row, seen, ended=True, unneeded=[] if old is None else [old]):
                row.prepared_snapshot, row.prepared_sha = snapshot_id, seen.sha
                row.prepared_at = await session.scalar(select(func.clock_timestamp()))
                row.prepared_from = {
                    "template": template,
                    "setup": seen.setup,
                    "directory": seen.directory,
                }
                row.prepare_error = None

    async def fail(self, repository_id: str, seen: Preparation, *, reason: str) -> None:
        """Record why there is no new snapshot; an old one stays."""
        async with self._sessions.begin() as session:
            row = await _lock(session, repository_id)
            if _change(row, seen, ended=True):
                row.prepare_error = storable(reason)[:_LONGEST_ERROR]

    async def repeat(self, repository_id: str, seen: Preparation) -> None:
        """End an interrupted preparation, so that another one begins."""
        async with self._sessions.begin() as session:
            row = await _lock(session, repository_id)
            _change(row, seen, ended=True, again=True, attempts=seen.attempts + 1)

    async def close(self, repository_id: str, seen: Preparation) -> bool:
        """Forget an ended preparation; returns whether another one begins."""
        async with self._sessions.begin() as session:
            row = await _lock(session, repository_id)
            known = underway(row)
            if known is None or known.id != seen.id:
                return row.preparation is not None
            row.preparation = asdict(_new(row, attempts=known.attempts)) if known.again else None
        return known.again

    async def discard(self, repository_id: str, seen_snapshot: str | None) -> None:
        """Forget what was prepared for a removed repository."""
        async with self._sessions.begin() as session:
            row = await _lock(session, repository_id)
            if row.removed_at is None or row.prepared_snapshot != seen_snapshot:
                return
            row.preparation = row.prepared_from = None
            row.prepared_snapshot = row.prepared_sha = None
            row.prepared_at = row.prepare_error = None
            await JobRepository(session).remove(PREPARATION, repository_id)

    async def forget(self, repository_id: str, snapshot_id: str) -> None:
        """Do not start from a snapshot any more that no sandbox starts from, and prepare another one."""
        async with self._sessions.begin() as session:
            row = await _lock(session, repository_id)
            if row.prepared_snapshot == snapshot_id and row.prepared_from is not None:
                row.prepared_from = row.prepared_sha = None  # the next one deletes the snapshot
                await request(session, row)


async def request(session: AsyncSession, row: Repository, *, at: datetime | None = None) -> None:
    """Request a preparation, or another one after that under way; the row is locked."""
    if row.preparation is None:
        row.preparation = {}
    elif row.preparation:
        row.preparation = {**row.preparation, "again": True}
    await JobRepository(session).due(PREPARATION, row.id, at)


async def refresh(session: AsyncSession, repository_id: str) -> None:
    """Prepare a repository anew after a push, if it was prepared before: once an hour at most."""
    row = await _lock(session, repository_id)
    if row.prepared_at is not None and row.preparation is None:
        await request(session, row, at=row.prepared_at + _REFRESH_AFTER)


def _new(row: Repository, *, attempts: int = 1) -> Preparation:
    settings = RepositorySettings.of(row.settings)
    return Preparation(
        id=new_id(),
        template=template_of(settings, has_agent=settings.agent_command is None),
        setup=settings.setup,
        setup_timeout_s=settings.setup_timeout.total_seconds(),
        directory=directory_of(row),
        capabilities=tuple(settings.capabilities),
        attempts=attempts,
    )


def _change(row: Repository, seen: Preparation, **changes: Any) -> bool:
    """Change a preparation, unless another one has replaced it."""
    known = underway(row)
    if known is None or known.id != seen.id or known.ended:
        return False
    row.preparation = {**asdict(known), **changes}
    return True


async def _lock(session: AsyncSession, repository_id: str) -> Repository:
    found = select(Repository).where(Repository.id == repository_id).with_for_update()
    return (await session.scalars(found.execution_options(populate_existing=True))).one()
