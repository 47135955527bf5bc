from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.db.models import Backend
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.jobs.kinds import ADMISSION
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.registry import Backends, KnownBackend
from sandbox_server.providers.repository import BackendRepository


@dataclass(frozen=True, kw_only=True)
class Member:
    """A backend as its row has it, with what the settings say of it, if they do."""

    row: Backend
    known: KnownBackend | None
    is_default: bool


class Fleet:
    """All backends that ever were in the settings."""

    def __init__(self, sessions: Sessions, backends: Backends) -> None:
        self._sessions = sessions
        self._known = dict(backends.items())

    async def list_all(self) -> Sequence[Member]:
        async with without_transaction(self._sessions) as session:
            rows = await BackendRepository(session).list_all()
        return [self._member(row) for row in rows]

    async def get(self, name: str) -> Member:
        async with without_transaction(self._sessions) as session:
            return self._member(await BackendRepository(session).get(name))

    async def set_drained(self, name: str, *, drained: bool) -> Member:
        """Let a backend have no new sandboxes, or again; who waits may find a place elsewhere now, or here."""
        async with self._sessions.begin() as session:
            row = await BackendRepository(session).set_drained(name, drained)
            for other in sorted({name, *self._known}):
                await JobRepository(session).due(ADMISSION, other)
        return self._member(row)

    def _member(self, row: Backend) -> Member:
        return Member(
            row=row,
            known=self._known.get(row.name),
            is_default=row.name == next(iter(self._known), None),
        )
