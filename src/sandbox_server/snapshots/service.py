from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Sandbox, Snapshot
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import InvalidTransition, NotReady, SnapshotFailed
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.requests import ForkRequest, Idempotency
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.jobs.kinds import SNAPSHOT
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.sandboxes.creation import Creation
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.service import WAIT
from sandbox_server.sandboxes.waiting import ASK_AGAIN, Waiting, require_begun
from sandbox_server.snapshots.repository import SnapshotRepository

_NOT_STARTED = frozenset({State.QUEUED, State.STARTING})


class SnapshotService:
    """Use cases of snapshots, and of forks, which are created from temporary snapshots."""

    def __init__(
        self,
        sessions: Sessions,
        scheduler: SandboxQueueScheduler,
        creation: Creation,
        waiting: Waiting,
    ) -> None:
        self._sessions = sessions
        self._scheduler = scheduler
        self._creation = creation
        self._waiting = waiting

    async def create(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        name: str | None = None,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
    ) -> Snapshot:
        """Copy a sandbox's disk; the sandbox continues, and the copy outlives it."""
        snapshot_id, job = new_id(), None
        async with self._sessions.begin() as session:
            made = await IdempotencyRepository(session).claim(
                caller.tenant_id, idempotency, resource="snapshot", resource_id=snapshot_id
            )
            if made == snapshot_id:
                source = await _get_source(session, caller, sandbox_id)
                job = await self._add(session, source, snapshot_id, name=name)
        with self._waiting.watch(made) as watch:
            if job is not None:
                self._scheduler.begin(job)
            row = await self.get(caller, made)
            row = await watch.until(_is_settled, row, lambda _: self.get(caller, made), wait=wait)
        if row.state == "failed":
            raise SnapshotFailed(row.state_reason or "reason not recorded")
        return row

    async def fork(
        self,
        caller: Caller,
        sandbox_id: str,
        wanted: ForkRequest,
        *,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
    ) -> Sandbox:
        """Create a sandbox with the current files of another one.

        One transaction inserts the fork, its snapshot and the job, so none exists without the others.
        """
        fork_id, snapshot_id, job = new_id(), new_id(), None
        async with self._sessions.begin() as session:
            made = await IdempotencyRepository(session).claim(
                caller.tenant_id, idempotency, resource="sandbox", resource_id=fork_id
            )
            if made == fork_id:
                source = await _get_source(session, caller, sandbox_id)
                job = await self._add(session, source, snapshot_id, temporary=True)
                row = await self._creation.add_fork(
                    session, caller, source, wanted, sandbox_id=made, snapshot_id=snapshot_id
                )
            else:
                row = await SandboxRepository(session).get(made, tenant_id=caller.tenant_id)
        with self._waiting.watch(made) as watch:
            if job is not None:
                self._scheduler.begin(job)
            return require_begun(await watch.until_settled(row, wait=wait))

    async def get(self, caller: Caller, snapshot_id: str) -> Snapshot:
        async with without_transaction(self._sessions) as session:
            return await SnapshotRepository(session).get(snapshot_id, tenant_id=caller.tenant_id)

    async def list_page(
        self, caller: Caller, *, sandbox_id: str | None, limit: int, before: str | None
    ) -> Sequence[Snapshot]:
        """List snapshots of all sandboxes, or of one that exists or existed."""
        async with without_transaction(self._sessions) as session:
            rows = await SnapshotRepository(session).list_page(
                caller.tenant_id, sandbox_id=sandbox_id, limit=limit, before=before
            )
            if sandbox_id is not None and not rows and before is None:
                await SandboxRepository(session).get(sandbox_id, tenant_id=caller.tenant_id)
        return rows

    async def delete(self, caller: Caller, snapshot_id: str) -> None:
        """Delete a snapshot; its files are removed when no sandbox created from it is left."""
        async with self._sessions.begin() as session:
            row = await SnapshotRepository(session).lock(snapshot_id, tenant_id=caller.tenant_id)
            row.state = "deleting"
            job = await self._scheduler.lease(session, SNAPSHOT, row.id)
        if job is not None:
            self._scheduler.begin(job)

    async def _add(
        self,
        session: AsyncSession,
        source: Sandbox,
        snapshot_id: str,
        *,
        name: str | None = None,
        temporary: bool = False,
    ) -> LeasedJob | None:
        row = Snapshot(
            id=snapshot_id,
            tenant_id=source.tenant_id,
            sandbox_id=source.id,
            backend=source.backend,
            name=name,
            state="creating",
            has_services=source.has_services,
            capabilities=source.capabilities,
            temporary=temporary,
        )
        await SnapshotRepository(session).add(row)
        return await self._scheduler.lease(session, SNAPSHOT, row.id)


async def _get_source(session: AsyncSession, caller: Caller, sandbox_id: str) -> Sandbox:
    row = await SandboxRepository(session).get(sandbox_id, tenant_id=caller.tenant_id)
    if row.state in ENDED or row.target is Target.GONE:
        raise InvalidTransition(row.state, "a copy")
    if row.state in _NOT_STARTED:
        raise NotReady(row.state, retry_after=ASK_AGAIN)
    return row


def _is_settled(row: Snapshot) -> bool:
    return row.state != "creating"
