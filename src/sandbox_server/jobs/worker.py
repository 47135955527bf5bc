import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from sandbox_server.db.batches import Batches
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.jobs import LeasedJob, LeaseLost, ProviderSaturated
from sandbox_server.jobs.heartbeat import Heartbeat
from sandbox_server.jobs.policy import Policy
from sandbox_server.jobs.repository import AT_ONCE, JobRepository
from sandbox_server.metrics.instruments import JOB_FAILURES

log = logging.getLogger(__name__)

_WHILE_CROWDED = timedelta(seconds=1)

# Processes the subject and returns when the job is due again; None is when it is requested.
Handler = Callable[[LeasedJob], Awaitable[datetime | None]]


class AckBatcher:
    """Acknowledges jobs in batches: those that finish during one statement share the next."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._batches = Batches(self._ack_all)

    async def ack(self, job: LeasedJob, at: datetime | None) -> None:
        """End the lease; returns after the commit."""
        if not await self._batches.write(job, at):  # row locked, lease lost, or batch failed
            async with self._sessions.begin() as session:
                await JobRepository(session).ack(job, at)

    async def _ack_all(self, due: Mapping[LeasedJob, datetime | None]) -> set[LeasedJob]:
        async with without_transaction(self._sessions) as session:
            acked = await JobRepository(session).ack_unlocked(due)
        return {job for job in due if job.id in acked}


class Abandoned(Exception):
    """No attempt at the job was acknowledged: its workers crashed."""

    def __init__(self, job: LeasedJob) -> None:
        super().__init__(f"{job.attempts - 1} workers ended before they acknowledged it")


@dataclass(eq=False, slots=True)
class _Held:
    job: LeasedJob
    task: asyncio.Task[object]


class Worker:
    """Works on the jobs leased to this process, and keeps their leases alive."""

    def __init__(self, sessions: Sessions, handlers: Mapping[str, Handler], policy: Policy) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.heartbeat = Heartbeat(sessions, self._jobs, lease=policy.lease)
        self._sessions = sessions
        self._handlers = handlers
        self._policy = policy
        self._acks = AckBatcher(sessions)
        self._held: set[_Held] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def work(
        self, job: LeasedJob, *, release: Callable[[], None] = lambda: None
    ) -> Exception | None:
        """Run the handler and acknowledge the job; returns the error of a failed attempt.

        `release` is called when the handler is done, before the acknowledgement.
        """
        task = asyncio.current_task()
        assert task is not None
        held = _Held(job, task)
        self._held.add(held)
        self._idle.clear()
        try:
            return await self._carry_out_and_ack(job, release)
        except asyncio.CancelledError:
            await self._release(job)
            raise
        finally:
            self._held.discard(held)
            if not self._held:
                self._idle.set()

    async def finish(self, *, grace: timedelta) -> None:
        """Wait for the current jobs; after `grace` they are cancelled and released."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace.total_seconds()):
                await self._idle.wait()
        for held in self._held:
            held.task.cancel()
        await self._idle.wait()

    async def _carry_out_and_ack(
        self, job: LeasedJob, release: Callable[[], None]
    ) -> Exception | None:
        try:
            at = await self._carry_out(job, release)
        except ProviderSaturated as saturated:
            await self._release(job, delay=_WHILE_CROWDED)
            return saturated
        except Exception as error:  # noqa: BLE001 - recorded and retried
            await self._fail(job, error)
            return error
        await self._acks.ack(job, at)
        return None

    async def _carry_out(self, job: LeasedJob, release: Callable[[], None]) -> datetime | None:
        try:
            if job.attempts > self._policy.max_attempts:
                raise Abandoned(job)
            async with asyncio.timeout(self._policy.longest_run.total_seconds()):
                return await self._handlers[job.kind](job)
        finally:
            release()

    async def _fail(self, job: LeasedJob, error: Exception) -> None:
        JOB_FAILURES.labels(job.kind).inc()
        text = f"{type(error).__name__}: {error}"
        log.warning(
            "job failed kind=%s subject=%s attempt=%d error=%s",
            *(job.kind, job.subject, job.attempts, text),
        )
        async with self._sessions.begin() as session:
            await JobRepository(session).fail(
                job,
                error=text,
                delay=self._policy.backoff.delay(job.attempts),
                max_attempts=self._policy.max_attempts,
            )

    async def _release(self, job: LeasedJob, *, delay: timedelta = AT_ONCE) -> None:
        try:
            async with self._sessions.begin() as session:
                await JobRepository(session).release(job, delay=delay)
        except (SQLAlchemyError, OSError, LeaseLost) as error:
            log.warning(
                "job not released kind=%s subject=%s error=%r", job.kind, job.subject, error
            )

    def _jobs(self) -> list[LeasedJob]:
        return [held.job for held in self._held]
