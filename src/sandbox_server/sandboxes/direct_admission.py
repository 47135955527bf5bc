from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.deadlines import admit
from sandbox_server.domain.events import entered
from sandbox_server.domain.state import State
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import ADMISSION
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.metrics.instruments import QUEUE_WAIT_SECONDS
from sandbox_server.sandboxes.repositories.capacity import CapacityRepository
from sandbox_server.sandboxes.repositories.direct_admission import DirectAdmissionRepository
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of, set_deadlines


class DirectAdmission:
    """Gives sandboxes a place as they are written down, where nobody waits for one.

    It keeps the locks and the rules of Admission, whose queue such a sandbox never stands in.
    """

    def __init__(self, *, by: str) -> None:
        self._by = by

    async def let_in(self, session: AsyncSession, row: Sandbox, now: datetime) -> bool:
        """Write a row down that starts; one that may not stays as it was, for the queue."""
        backend = await _find_room(session, row.candidates)
        if backend is None:
            return False
        before = deadlines_of(row)
        _enter(row, backend, now)
        if not await DirectAdmissionRepository(session).add(row):
            _leave(row)
            set_deadlines(row, before)
            # Its tenant is held, so those of the others that wait cannot be: a job looks at all.
            await JobRepository(session).due(ADMISSION, backend)
            return False
        QUEUE_WAIT_SECONDS.labels(backend).observe(0)
        await self._tell(session, row)
        return True

    async def _tell(self, session: AsyncSession, row: Sandbox) -> None:
        wish = TransitionCause.of(row.wish)
        started = entered(
            deadlines_of(row),
            sandbox_id=row.id,
            cause=wish.cause,
            actor=wish.actor,
            reason=wish.reason,
        )
        await EventRepository(session).append(row.tenant_id, started, by=self._by)


async def _find_room(session: AsyncSession, candidates: Sequence[str]) -> str | None:
    rooms = {room.backend: room for room in await CapacityRepository(session).lock(candidates)}
    known = (rooms[name] for name in candidates if name in rooms)
    return next(
        (room.backend for room in known if room.free > 0 and room.admits(State.QUEUED)), None
    )


def _enter(row: Sandbox, backend: str, now: datetime) -> None:
    set_deadlines(row, admit(deadlines_of(row), now))
    row.backend, row.generation = backend, 1
    row.tried_at = now  # who has let it in asks its provider next
    row.state_reason = TransitionCause.of(row.wish).reason


def _leave(row: Sandbox) -> None:
    row.backend, row.generation = None, 0
    row.tried_at = row.state_reason = None
