import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from sandbox_server.admin.metric_families import (
    describe_pool,
    describe_readiness,
    describe_totals,
    describe_version,
)
from sandbox_server.admin.overview import Overview, ReadinessCheck
from sandbox_server.admin.stats_repository import Totals
from sandbox_server.db.session import Sessions, pool_use
from sandbox_server.metrics.instruments import PROCESS

_MAX_AGE = timedelta(seconds=5)


@dataclass(frozen=True)
class _Snapshot:
    readiness: ReadinessCheck
    totals: Totals | None
    expires_at: float


class MetricsExporter:
    """Renders the metrics for Prometheus: of this process and of the whole installation.

    The database is queried at most every few seconds, regardless of the scrape rate; during an outage its metrics are omitted.
    """

    def __init__(
        self,
        sessions: Sessions,
        overview: Overview,
        *,
        max_age: timedelta = _MAX_AGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._overview = overview
        self._max_age = max_age
        self._clock = clock
        self._snapshot: _Snapshot | None = None
        self._reading = asyncio.Lock()

    async def render(self, accept: str) -> tuple[bytes, str]:
        """Render the format that `Accept` requests; returns the content and its media type."""
        snapshot = await self._read()
        encode, media_type = choose_encoder(accept)
        collector = _Collector(self._describe(snapshot))
        # In a thread: thousands of lines would block the event loop.
        return await asyncio.to_thread(encode, collector), media_type

    async def _read(self) -> _Snapshot:
        async with self._reading:
            if self._snapshot is None or self._clock() >= self._snapshot.expires_at:
                self._snapshot = await self._query()
            return self._snapshot

    async def _query(self) -> _Snapshot:
        readiness, totals = await asyncio.gather(
            self._overview.check_readiness(), self._overview.find_totals()
        )
        return _Snapshot(readiness, totals, self._clock() + self._max_age.total_seconds())

    def _describe(self, snapshot: _Snapshot) -> list[Metric]:
        return [
            describe_version(),
            describe_readiness(snapshot.readiness),
            *describe_pool(pool_use(self._sessions)),
            *(() if snapshot.totals is None else describe_totals(snapshot.totals)),
        ]


@dataclass(frozen=True)
class _Collector:
    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        yield from self.metrics
        yield from PROCESS.collect()
