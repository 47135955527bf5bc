from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox, TemplateBuild
from sandbox_server.domain.capacity import BackendCapacity
from sandbox_server.domain.due import waits_for_slot
from sandbox_server.domain.state import State
from sandbox_server.sandboxes.repositories.awaited import TemplateWaitRepository
from sandbox_server.sandboxes.repositories.capacity import CapacityRepository
from sandbox_server.sandboxes.repositories.queue import QueuePosition, QueueViewRepository
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of


@dataclass(frozen=True, kw_only=True)
class QueueView:
    """Where a sandbox stands that waits for a place."""

    position: int
    """1 is next of those that wait for the same backends."""
    reason: str
    estimate: timedelta | None
    """How long it takes until its turn at the latest, if all that run do so until their deadlines."""


_BEING_COPIED = "Waiting for the snapshot that the sandbox is forked from."


async def describe_queue(session: AsyncSession, row: Sandbox) -> QueueView | None:
    """Say where a sandbox stands in the queue, if it does; of one that does not, nothing is asked."""
    return (await describe_queues(session, [row])).get(row.id)


async def describe_queues(
    session: AsyncSession, rows: Collection[Sandbox]
) -> Mapping[str, QueueView]:
    """Say where those of the sandboxes stand that wait, in as many questions as for one."""
    waiting = {row.id: row for row in rows if waits_for_slot(deadlines_of(row))}
    if not waiting:
        return {}
    backends = {backend for row in waiting.values() for backend in _may_be_at(row)}
    rooms = await CapacityRepository(session).find(backends)
    repository = QueueViewRepository(session)
    positions = await repository.find_positions(waiting, rooms)
    releases = _Releases(repository)
    views = await _stand_aside(session, [row for row in waiting.values() if not _may_be_at(row)])
    for id_, position in positions.items():
        row = waiting[id_]
        own = [room for room in rooms if room.backend in _may_be_at(row)]
        views[id_] = QueueView(
            position=position.ahead + 1,
            reason=_explain(row, position, own),
            estimate=await releases.estimate(row, position, own),
        )
    return views


async def _stand_aside(session: AsyncSession, rows: Sequence[Sandbox]) -> dict[str, QueueView]:
    """Say what those wait for that no backend may have yet."""
    awaited = {row.awaited_template_id for row in rows if row.awaited_template_id is not None}
    builds = await TemplateWaitRepository(session).list_under_way(awaited) if awaited else []
    told = {build.template_id: _progress(name, build) for name, build in builds}
    views = {}
    for row in rows:
        built = f"The template {row.template!r} is being built."
        reason = (
            told.get(row.awaited_template_id, built) if row.awaited_template_id else _BEING_COPIED
        )
        views[row.id] = QueueView(position=1, reason=reason, estimate=None)
    return views


def _progress(name: str, build: TemplateBuild) -> str:
    said = f"The template {name!r} is being built at {build.backend}"
    return f"{said}." if build.state_reason is None else f"{said}: {build.state_reason}"


class _Releases:
    """When places get free by themselves, asked once for all who wait for the same."""

    def __init__(self, repository: QueueViewRepository) -> None:
        self._repository = repository
        self._of: dict[str, Sequence[datetime | None]] = {}
        self._at: dict[tuple[str, ...], Sequence[datetime | None]] = {}

    async def estimate(
        self, row: Sandbox, position: QueuePosition, rooms: Sequence[BackendCapacity]
    ) -> timedelta | None:
        at = await self._find_turn(row, position, rooms)
        return None if at is None else max(at - position.now, timedelta())

    async def _find_turn(
        self, row: Sandbox, position: QueuePosition, rooms: Sequence[BackendCapacity]
    ) -> datetime | None:
        if position.lacks_quota:
            tenant_id, too_many = row.tenant_id, position.running - position.max_running
            if tenant_id not in self._of:
                self._of[tenant_id] = await self._repository.list_releases_of(tenant_id)
            return _nth(self._of[tenant_id], position.ahead_in_tenant + too_many)
        taking = tuple(room for room in rooms if room.admits(row.state))
        if not taking:
            return min((room.busy_until for room in rooms if room.busy_until), default=None)
        behind = position.ahead - sum(room.free for room in taking)
        if behind < 0 or _kept_place(row, rooms):
            return position.now
        names = tuple(room.backend for room in taking)
        if names not in self._at:
            self._at[names] = await self._repository.list_releases_at(taking)
        return _nth(self._at[names], behind)


def _explain(row: Sandbox, position: QueuePosition, rooms: Sequence[BackendCapacity]) -> str:
    if position.lacks_quota:
        return (
            f"Tenant {position.tenant} is running its maximum of {position.max_running} sandboxes."
        )
    return (
        " ".join(room.explain(row.state) for room in rooms)
        or "None of its candidate backends is known."
    )


def _may_be_at(row: Sandbox) -> Collection[str]:
    return row.candidates if row.state is State.QUEUED else [row.backend or ""]


def _kept_place(row: Sandbox, rooms: Sequence[BackendCapacity]) -> bool:
    return row.state is State.PAUSED and any(room.keeps_slots for room in rooms)


def _nth(instants: Sequence[datetime | None], index: int) -> datetime | None:
    return instants[index] if index < len(instants) else None
