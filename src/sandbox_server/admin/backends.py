from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.db.models import Backend
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.jobs.kinds import ADMISSION, DRIFT_CHECK, TEMPLATES
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.registry import NOT_CONFIGURED, Backends, KnownBackend
from sandbox_server.providers.repository import BackendRepository


@dataclass(frozen=True, kw_only=True)
class BackendStatus:
    """A backend's row and, if it is still configured, its settings."""

    row: Backend
    known: KnownBackend | None
    is_default: bool


class BackendOverview:
    """All backends that are or were configured."""

    def __init__(self, sessions: Sessions, backends: Backends) -> None:
        self._sessions = sessions
        self._known = dict(backends.items())

    async def list_all(self) -> Sequence[BackendStatus]:
        async with without_transaction(self._sessions) as session:
            rows = await BackendRepository(session).list_all()
        return [self._status(row) for row in rows]

    async def get(self, name: str) -> BackendStatus:
        async with without_transaction(self._sessions) as session:
            return self._status(await BackendRepository(session).get(name))

    async def set_drained(self, name: str, *, drained: bool) -> BackendStatus:
        """Start or end draining a backend; admission runs again everywhere, since queued sandboxes may fit now."""
        async with self._sessions.begin() as session:
            row = await BackendRepository(session).set_drained(name, drained)
            for other in sorted({name, *self._known}):
                await JobRepository(session).due(ADMISSION, other)
        return self._status(row)

    def _status(self, row: Backend) -> BackendStatus:
        return BackendStatus(
            row=row,
            known=self._known.get(row.name),
            is_default=row.name == next(iter(self._known), None),
        )


async def register_backends(sessions: Sessions, backends: Backends) -> None:
    """Store the configured backends and schedule their periodic jobs."""
    async with sessions.begin() as session:
        rows = BackendRepository(session)
        for name, known in sorted(backends.items()):
            await rows.register(
                name, capacity=known.capacity, paused_takes_place=known.paused_takes_place
            )
        await rows.retire_except(list(backends), reason=NOT_CONFIGURED)
        jobs = JobRepository(session)
        for name in sorted(backends):
            await jobs.due(DRIFT_CHECK, name)
            await jobs.due(ADMISSION, name)
            await jobs.due(TEMPLATES, name)
