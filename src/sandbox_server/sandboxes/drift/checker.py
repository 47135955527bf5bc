import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox_server.db.session import Sessions
from sandbox_server.domain.errors import BackendBusy, BackendError
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.kinds import ADMISSION, SANDBOX, SERVICES
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.protocol.errors import SandboxGone
from sandbox_server.providers.protocol.limits import without_limits
from sandbox_server.providers.protocol.provider import ProviderSandbox
from sandbox_server.providers.registry import Backend, Backends
from sandbox_server.providers.repository import BackendRepository
from sandbox_server.sandboxes.drift.diff import RecordedSandbox, diff
from sandbox_server.sandboxes.drift.for_each_limited import for_each_limited
from sandbox_server.sandboxes.drift.liveness import LivenessChecker
from sandbox_server.sandboxes.drift.orphans import OrphanResolver
from sandbox_server.sandboxes.drift.repository import DriftRepository
from sandbox_server.sandboxes.reconciler import Reconciler
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CheckIntervals:
    """How often a backend is checked, and how long it may take to answer."""

    interval: timedelta = timedelta(seconds=20)
    again: timedelta = timedelta(seconds=5)
    """After a failure; a second failure marks the backend as down."""
    answer_within: timedelta = timedelta(seconds=10)
    busy_for: timedelta = timedelta(minutes=1)
    """How long a backend may be busy before it is marked as down."""


INTERVALS = CheckIntervals()


class DriftChecker:
    """Compares the sandboxes of each backend with the rows, and corrects differences."""

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        reconciler: Reconciler,
        liveness: LivenessChecker,
        orphans: OrphanResolver,
        *,
        intervals: CheckIntervals = INTERVALS,
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._reconciler = reconciler
        self._liveness = liveness
        self._orphans = orphans
        self._intervals = intervals

    async def check(self, job: LeasedJob) -> datetime | None:
        """Check one backend; returns when to check it again."""
        name = job.subject
        if name not in self._backends:
            return None
        with without_limits():
            return await self._check(self._backends[name])

    async def _check(self, backend: Backend) -> datetime:
        name = backend.name
        recorded = await self._read(name)
        try:
            listed = await backend.list_all(limit=self._intervals.answer_within)
        except BackendError as error:
            await self._note_failure(name, error)
            return await self._after(self._intervals.again)
        await self._note_answer(name)
        await self._correct_all(backend, recorded, listed)
        await self._liveness.check(backend)
        return await self._after(self._intervals.interval)

    async def _read(self, name: str) -> Sequence[RecordedSandbox]:
        # Before the provider is asked: rows that change meanwhile have another generation.
        async with self._sessions() as session:
            return [
                RecordedSandbox(*row) for row in await DriftRepository(session).list_living(name)
            ]

    async def _correct_all(
        self,
        backend: Backend,
        recorded: Sequence[RecordedSandbox],
        listed: Sequence[ProviderSandbox],
    ) -> None:
        differences = diff(recorded, listed)

        async def correct(row: RecordedSandbox) -> None:
            await self._correct(backend, row)

        async def kill(duplicate: ProviderSandbox) -> None:
            log.warning(
                "killing duplicate sandbox=%s backend=%s id=%s",
                *(duplicate.sandbox_id, backend.name, duplicate.id),
            )
            await backend.kill(duplicate.id)

        await for_each_limited(differences.doubtful, correct)
        await for_each_limited(differences.duplicates, kill)
        left = await self._orphans.resolve(backend, differences.unknown)
        async with self._sessions.begin() as session:
            await BackendRepository(session).count_orphans(backend.name, left)

    async def _correct(self, backend: Backend, recorded: RecordedSandbox) -> None:
        async with self._sessions() as session:
            found = await SandboxRepository(session).find(recorded.id)
        if found is None or found[0].generation != recorded.generation:
            return
        row, now = found
        assert row.backend_sandbox_id is not None
        try:
            truth = await backend.info(row.backend_sandbox_id, limit=self._intervals.answer_within)
        except SandboxGone:
            await self._reconciler.correct(row, now, None)
        else:
            await self._reconciler.correct(row, now, truth)

    async def _note_answer(self, name: str) -> None:
        async with self._sessions.begin() as session:
            if not await BackendRepository(session).answered(name):
                return
            log.info("backend answers name=%s", name)
            await DriftRepository(session).revive_jobs(name, kinds=[SANDBOX, SERVICES])
            await JobRepository(session).due(ADMISSION, name)

    async def _note_failure(self, name: str, error: BackendError) -> None:
        busy = isinstance(error, BackendBusy)
        async with self._sessions.begin() as session:
            down = await BackendRepository(session).failed(
                name,
                reason=error.reason,
                down_after=self._intervals.busy_for if busy else self._intervals.again,
            )
        log.warning("backend fails name=%s down=%s error=%s", name, down, error.reason)

    async def _after(self, duration: timedelta) -> datetime:
        async with self._sessions() as session:
            return await SandboxRepository(session).clock() + duration
