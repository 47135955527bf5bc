from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox, TemplateBuild
from sandbox_server.domain.capacity import BackendCapacity
from sandbox_server.domain.due import waits_for_slot
from sandbox_server.domain.state import State
from sandbox_server.sandboxes.repositories.capacity import CapacityRepository
from sandbox_server.sandboxes.repositories.queue import QueuePosition, QueueViewRepository
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of
from sandbox_server.sandboxes.repositories.template_waits import TemplateWaitRepository


@dataclass(frozen=True, kw_only=True)
class QueueView:
    """The position of a queued sandbox."""

    position: int
    """1 is the next one of those that wait for the same backends."""
    reason: str
    estimate: timedelta | None
    """The time until its admission, if every running sandbox runs until its deadline."""


_WAITS_FOR_SNAPSHOT = "Waiting for the snapshot that the sandbox is forked from."


async def describe_queue(session: AsyncSession, row: Sandbox) -> QueueView | None:
    """Describe the position of a sandbox, if it is queued."""
    return (await describe_queues(session, [row])).get(row.id)


async def describe_queues(
    session: AsyncSession, rows: Collection[Sandbox]
) -> Mapping[str, QueueView]:
    """Describe the positions of queued sandboxes, in as many queries as for one."""
    waiting = {row.id: row for row in rows if waits_for_slot(deadlines_of(row))}
    if not waiting:
        return {}
    backends = {backend for row in waiting.values() for backend in _possible_backends(row)}
    capacities = await CapacityRepository(session).find(backends)
    repository = QueueViewRepository(session)
    positions = await repository.find_positions(waiting, capacities)
    releases = _Releases(repository)
    views = await _describe_waiters(
        session, [row for row in waiting.values() if not _possible_backends(row)]
    )
    for id_, position in positions.items():
        row = waiting[id_]
        own = [capacity for capacity in capacities if capacity.backend in _possible_backends(row)]
        views[id_] = QueueView(
            position=position.ahead + 1,
            reason=_explain(row, position, own),
            estimate=await releases.estimate(row, position, own),
        )
    return views


async def _describe_waiters(session: AsyncSession, rows: Sequence[Sandbox]) -> dict[str, QueueView]:
    """Describe sandboxes that wait for a template or a snapshot."""
    awaited = {row.awaited_template_id for row in rows if row.awaited_template_id is not None}
    builds = await TemplateWaitRepository(session).list_under_way(awaited) if awaited else []
    progress = {build.template_id: _progress(name, build) for name, build in builds}
    views = {}
    for row in rows:
        fallback = f"The template {row.template!r} is being built."
        reason = (
            progress.get(row.awaited_template_id, fallback)
            if row.awaited_template_id
            else _WAITS_FOR_SNAPSHOT
        )
        views[row.id] = QueueView(position=1, reason=reason, estimate=None)
    return views


def _progress(name: str, build: TemplateBuild) -> str:
    text = f"The template {name!r} is being built at {build.backend}"
    return f"{text}." if build.state_reason is None else f"{text}: {build.state_reason}"


class _Releases:
    """When slots become free by deadlines, queried once per set of backends."""

    def __init__(self, repository: QueueViewRepository) -> None:
        self._repository = repository
        self._of: dict[str, Sequence[datetime | None]] = {}
        self._at: dict[tuple[str, ...], Sequence[datetime | None]] = {}

    async def estimate(
        self, row: Sandbox, position: QueuePosition, capacities: Sequence[BackendCapacity]
    ) -> timedelta | None:
        at = await self._find_admission(row, position, capacities)
        return None if at is None else max(at - position.now, timedelta())

    async def _find_admission(
        self, row: Sandbox, position: QueuePosition, capacities: Sequence[BackendCapacity]
    ) -> datetime | None:
        if position.lacks_quota:
            tenant_id, too_many = row.tenant_id, position.running - position.max_running
            if tenant_id not in self._of:
                self._of[tenant_id] = await self._repository.list_releases_of(tenant_id)
            return _nth(self._of[tenant_id], position.ahead_in_tenant + too_many)
        taking = tuple(capacity for capacity in capacities if capacity.admits(row.state))
        if not taking:
            return min(
                (capacity.busy_until for capacity in capacities if capacity.busy_until),
                default=None,
            )
        behind = position.ahead - sum(capacity.free for capacity in taking)
        if behind < 0 or _keeps_slot(row, capacities):
            return position.now
        names = tuple(capacity.backend for capacity in taking)
        if names not in self._at:
            self._at[names] = await self._repository.list_releases_at(taking)
        return _nth(self._at[names], behind)


def _explain(row: Sandbox, position: QueuePosition, capacities: Sequence[BackendCapacity]) -> str:
    if position.lacks_quota:
        return (
            f"Tenant {position.tenant} is running its maximum of {position.max_running} sandboxes."
        )
    return (
        " ".join(capacity.explain(row.state) for capacity in capacities)
        or "None of its candidate backends is known."
    )


def _possible_backends(row: Sandbox) -> Collection[str]:
    return row.candidates if row.state is State.QUEUED else [row.backend or ""]


def _keeps_slot(row: Sandbox, capacities: Sequence[BackendCapacity]) -> bool:
    return row.state is State.PAUSED and any(capacity.keeps_slots for capacity in capacities)


def _nth(instants: Sequence[datetime | None], index: int) -> datetime | None:
    return instants[index] if index < len(instants) else None
