import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox_server.db.session import Sessions
from sandbox_server.domain.errors import BackendBusy, BackendError
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.kinds import ADMISSION, SANDBOX, SERVICES
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.errors import SandboxGone
from sandbox_server.providers.protocol.limits import beside_lanes
from sandbox_server.providers.protocol.provider import ProviderSandbox
from sandbox_server.providers.registry import Backends
from sandbox_server.providers.repository import BackendRepository
from sandbox_server.sandboxes.drift.diff import Seen, compare
from sandbox_server.sandboxes.drift.for_each_limited import for_each
from sandbox_server.sandboxes.drift.liveness import PATIENCE, Patience, Silence
from sandbox_server.sandboxes.drift.orphans import Strangers
from sandbox_server.sandboxes.drift.repository import PatrolRepository
from sandbox_server.sandboxes.reconciler import Reconciler
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Rhythm:
    """How often a backend is looked at, and how long it may take to answer."""

    interval: timedelta = timedelta(seconds=20)
    again: timedelta = timedelta(seconds=5)
    """After a failure; the next one means that the backend is down."""
    answer_within: timedelta = timedelta(seconds=10)
    busy_for: timedelta = timedelta(minutes=1)
    """How long a backend may be too busy to be asked before that counts as being down."""


RHYTHM = Rhythm()


class Patrol:
    """Compares what backends have with what the records say, and puts right what differs."""

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        vault: Vault,
        reconciler: Reconciler,
        *,
        rhythm: Rhythm = RHYTHM,
        patience: Patience = PATIENCE,
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._reconciler = reconciler
        self._rhythm = rhythm
        self._silence = Silence(sessions, vault, patience=patience)
        self._strangers = Strangers(sessions, reconciler)

    async def work(self, job: LeasedJob) -> datetime | None:
        """Look at one backend; gives when to look at it again."""
        name = job.subject
        if name not in self._backends:
            return None
        with beside_lanes():
            return await self._look_at(self._backends[name])

    async def _look_at(self, backend: E2BBackend) -> datetime:
        name = backend.name
        seen = await self._read(name)
        try:
            listed = await backend.list_all(limit=self._rhythm.answer_within)
        except BackendError as error:
            await self._note_failure(name, error)
            return await self._after(self._rhythm.again)
        await self._note_answer(name)
        await self._put_right(backend, seen, listed)
        await self._silence.listen(backend)
        return await self._after(self._rhythm.interval)

    async def _read(self, name: str) -> Sequence[Seen]:
        # Before the provider is asked: what changes meanwhile is told by its generation.
        async with self._sessions() as session:
            return [Seen(*row) for row in await PatrolRepository(session).list_living(name)]

    async def _put_right(
        self, backend: E2BBackend, seen: Sequence[Seen], listed: Sequence[ProviderSandbox]
    ) -> None:
        differences = compare(seen, listed)

        async def correct(row: Seen) -> None:
            await self._correct(backend, row)

        async def kill(double: ProviderSandbox) -> None:
            log.warning(
                "killing a double sandbox=%s backend=%s id=%s",
                *(double.sandbox_id, backend.name, double.id),
            )
            await backend.kill(double.id)

        await for_each(differences.doubtful, correct)
        await for_each(differences.doubles, kill)
        left = await self._strangers.settle(backend, differences.unknown)
        async with self._sessions.begin() as session:
            await BackendRepository(session).count_strangers(backend.name, left)

    async def _correct(self, backend: E2BBackend, seen: Seen) -> None:
        async with self._sessions() as session:
            found = await SandboxRepository(session).find(seen.id)
        if found is None or found[0].generation != seen.generation:
            return
        row, now = found
        assert row.backend_sandbox_id is not None
        try:
            truth = await backend.info(row.backend_sandbox_id, limit=self._rhythm.answer_within)
        except SandboxGone:
            await self._reconciler.correct(row, now, None)
        else:
            await self._reconciler.correct(row, now, truth)

    async def _note_answer(self, name: str) -> None:
        async with self._sessions.begin() as session:
            if not await BackendRepository(session).answered(name):
                return
            log.info("backend answers name=%s", name)
            await PatrolRepository(session).revive_jobs(name, kinds=[SANDBOX, SERVICES])
            await JobRepository(session).due(ADMISSION, name)

    async def _note_failure(self, name: str, error: BackendError) -> None:
        busy = isinstance(error, BackendBusy)
        async with self._sessions.begin() as session:
            down = await BackendRepository(session).failed(
                name,
                reason=error.reason,
                down_after=self._rhythm.busy_for if busy else self._rhythm.again,
            )
        log.warning("backend fails name=%s down=%s error=%s", name, down, error.reason)

    async def _after(self, duration: timedelta) -> datetime:
        async with self._sessions() as session:
            return await SandboxRepository(session).clock() + duration
