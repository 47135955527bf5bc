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

_KEPT = timedelta(seconds=5)


@dataclass(frozen=True)
class _Known:
    readiness: ReadinessCheck
    totals: Totals | None
    until: float


class MetricsExporter:
    """All that a server tells Prometheus: of its process, and of what all servers share.

    The database is asked at most every few seconds, however many ask us; while it does not answer, the rest is told.
    """

    def __init__(
        self,
        sessions: Sessions,
        overview: Overview,
        *,
        kept: timedelta = _KEPT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._overview = overview
        self._kept = kept
        self._clock = clock
        self._known: _Known | None = None
        self._reading = asyncio.Lock()

    async def render(self, accept: str) -> tuple[bytes, str]:
        """Write it in the format that the header `Accept` asks for; gives the type of that too."""
        known = await self._read()
        encode, media_type = choose_encoder(accept)
        told = _Told(self._describe(known))
        # Thousands of lines, during which no request should wait.
        return await asyncio.to_thread(encode, told), media_type

    async def _read(self) -> _Known:
        async with self._reading:
            if self._known is None or self._clock() >= self._known.until:
                self._known = await self._ask()
            return self._known

    async def _ask(self) -> _Known:
        readiness, totals = await asyncio.gather(
            self._overview.check_readiness(), self._overview.find_totals()
        )
        return _Known(readiness, totals, self._clock() + self._kept.total_seconds())

    def _describe(self, known: _Known) -> list[Metric]:
        return [
            describe_version(),
            describe_readiness(known.readiness),
            *describe_pool(pool_use(self._sessions)),
            *(() if known.totals is None else describe_totals(known.totals)),
        ]


@dataclass(frozen=True)
class _Told:
    found: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        yield from self.found
        yield from PROCESS.collect()
