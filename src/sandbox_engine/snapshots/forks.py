import asyncio
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sandbox_engine.records.sandbox import SandboxRecord, State
from sandbox_engine.records.snapshot_store import SnapshotStore
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.service import SandboxService
from sandbox_engine.snapshots.snapshots import Snapshots
from sandbox_engine.system.errors import EngineError, InvalidRequest
from sandbox_engine.system.ids import new_id

MOST_FORKS = 100


class Forks:
    """Creates sandboxes with the current files of another."""

    def __init__(
        self,
        store: SnapshotStore,
        snapshots: Snapshots,
        lifecycle: Lifecycle,
        *,
        service: SandboxService,
    ) -> None:
        self._store = store
        self._snapshots = snapshots
        self._lifecycle = lifecycle
        self._service = service

    async def fork(
        self, sandbox_id: str, *, count: int, timeout: timedelta
    ) -> Sequence[SandboxRecord | EngineError]:
        """Start `count` sandboxes from one copy of the files; each succeeds or fails by itself."""
        self._service.check_timeout(timeout)
        if not 1 <= count <= MOST_FORKS:
            raise InvalidRequest(f"Count must be between 1 and {MOST_FORKS}")
        source = self._service.get(sandbox_id)
        snapshot = await self._snapshots.copy(sandbox_id)
        with self._store.pinned(snapshot.id):
            forks = [_fork_of(source, base=snapshot.id, timeout=timeout) for _ in range(count)]
            results = await asyncio.gather(*map(self._start, forks))
        await self._snapshots.collect()
        return results

    async def _start(self, fork: SandboxRecord) -> SandboxRecord | EngineError:
        try:
            await self._lifecycle.create(fork)
        except EngineError as error:
            return error
        return fork


def _fork_of(source: SandboxRecord, *, base: str, timeout: timedelta) -> SandboxRecord:
    now = datetime.now(UTC)
    fresh = {
        "id": new_id(),
        "state": State.CREATING,
        "reason": "",
        "base": base,
        "access_token": secrets.token_hex(32),
        "traffic_token": source.traffic_token and secrets.token_hex(32),
        "created_at": now,
        "started_at": now,
        "ends_at": now + timeout,
        "timeout": timeout,
        "filesystem_only": False,
        "idempotency": None,
        "link": None,
        "init": None,
    }
    return source.model_copy(update=fresh, deep=True)
