import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.repository import JobRepository


@dataclass
class _Batch:
    due: dict[LeasedJob, datetime | None] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class AckBatcher:
    """Acknowledges jobs in batches: those that finish during one transaction share the next."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._batch = _Batch()
        self._turn = asyncio.Lock()

    async def ack(self, job: LeasedJob, at: datetime | None) -> None:
        """End the lease; returns after the commit."""
        batch = self._batch
        batch.due[job] = at
        if len(batch.due) == 1:
            await self._write(batch)
        else:
            await batch.over.wait()
        if job.id not in batch.acked:  # row locked, lease lost, or batch failed
            async with self._sessions.begin() as session:
                await JobRepository(session).ack(job, at)

    async def _write(self, batch: _Batch) -> None:
        try:
            async with self._turn:
                await asyncio.sleep(0)  # jobs that finished by now join the batch
                self._batch = _Batch()
                async with without_transaction(self._sessions) as session:
                    acked = await JobRepository(session).ack_unlocked(batch.due)
                batch.acked = acked
        finally:
            if self._batch is batch:
                self._batch = _Batch()
            batch.over.set()
