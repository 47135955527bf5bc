from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from sandbox_server.db.models import Sandbox, Snapshot
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import BackendError, BackendRefused, Superseded
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.kinds import ADMISSION, SNAPSHOT
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.protocol.errors import SandboxGone, SandboxNotRunning
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.outcomes import not_started
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.transitions import Transitions
from sandbox_server.snapshots.repository import SnapshotRepository

GIVE_UP_AFTER = timedelta(minutes=5)


class SnapshotReconciler:
    """Takes and deletes snapshots at providers, as their rows say.

        creating -> ready -> deleting -> deleted        the temporary snapshot of a fork is deleted by itself
            └────> failed

    At its provider a snapshot is named by our id: a repeated request replaces the earlier copy, and sandboxes are
    created from it by that name.
    """

    def __init__(self, sessions: Sessions, backends: Backends, transitions: Transitions) -> None:
        self._sessions = sessions
        self._backends = backends
        self._transitions = transitions

    async def reconcile(self, job: LeasedJob) -> datetime | None:
        """Take or delete a snapshot; its job is due again when a sandbox created from it ends."""
        row = await self._find(job.subject)
        if row is not None and row.state == "creating":
            row = await self._take(row)
        if row is not None and (row.state == "deleting" or row.temporary):
            await self._delete_unneeded(row)
        return None

    async def _find(self, snapshot_id: str) -> Snapshot | None:
        async with without_transaction(self._sessions) as session:
            return await SnapshotRepository(session).find(snapshot_id)

    async def _take(self, row: Snapshot) -> Snapshot | None:
        try:
            taken = await self._copy(row)
        except (BackendRefused, SandboxNotRunning, SandboxGone) as error:
            return await self._give_up(row, error)
        except BackendError as error:
            if await self._is_young(row):
                raise
            return await self._give_up(row, error)
        async with self._sessions.begin() as session:
            kept = await SnapshotRepository(session).lock(row.id)
            kept.backend_snapshot_id = taken
            if kept.state == "creating":
                kept.state = "ready"
                if await SnapshotRepository(session).queue_forks(kept):
                    await JobRepository(session).due(ADMISSION, row.backend)
            await SandboxRepository(session).announce(row.id)
        return kept

    async def _copy(self, row: Snapshot) -> str:
        backend = self._backends[row.backend]
        async with without_transaction(self._sessions) as session:
            source = await SandboxRepository(session).find(row.sandbox_id)
        provider_id = source[0].backend_sandbox_id if source else None
        if provider_id is None:
            raise SandboxGone(row.backend, row.sandbox_id)
        return await backend.snapshot(provider_id, name=row.id)

    async def _give_up(self, row: Snapshot, error: BackendError) -> Snapshot:
        # The waiting forks first: they could not be found after the snapshot has failed.
        for fork in await self._list_waiting(row):
            with suppress(Superseded):  # its target is `gone`; its own job deletes it
                await self._transitions.commit(fork, not_started(error))
        async with self._sessions.begin() as session:
            kept = await SnapshotRepository(session).lock(row.id)
            if kept.state == "creating":
                kept.state, kept.state_reason = "failed", str(error)
            await SandboxRepository(session).announce(row.id)
        return kept

    async def _delete_unneeded(self, row: Snapshot) -> None:
        """Delete the snapshot at its provider, unless a sandbox was created from it and still exists."""
        async with self._sessions.begin() as session:
            repository = SnapshotRepository(session)
            kept = await repository.lock(row.id)
            if await repository.is_needed(kept):
                return
            kept.state = "deleting"
        backend = self._backends[row.backend]
        at_provider = kept.backend_snapshot_id or await backend.find_snapshot(row.id)
        if at_provider is not None:
            await backend.delete_snapshot(at_provider)
        async with self._sessions.begin() as session:
            await SnapshotRepository(session).remove(row.id)
            await JobRepository(session).remove(SNAPSHOT, row.id)

    async def _list_waiting(self, row: Snapshot) -> Sequence[Sandbox]:
        async with without_transaction(self._sessions) as session:
            return await SnapshotRepository(session).list_waiting_forks(row)

    async def _is_young(self, row: Snapshot) -> bool:
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).clock() - row.created_at < GIVE_UP_AFTER
