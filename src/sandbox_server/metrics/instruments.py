"""Prometheus metrics of this process.

Labels never contain values that callers choose: no ids, tenant names or paths other than routes.
"""

import asyncio
from datetime import timedelta
from time import perf_counter
from types import TracebackType
from typing import Self

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from sandbox_server.domain.errors import SandboxError

_CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAITS = (0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600)
_LAG_SAMPLED_EVERY = timedelta(milliseconds=250)
_LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60)

# Avoids a `_created` series for each counter.
disable_created_metrics()  # type: ignore[no-untyped-call]

PROCESS = CollectorRegistry()
ProcessCollector(registry=PROCESS)
GCCollector(registry=PROCESS)

HTTP_REQUESTS = Counter(
    "sandbox_server_http_requests",
    "HTTP requests by route and status.",
    ["method", "route", "status"],
    registry=PROCESS,
)
HTTP_SECONDS = Histogram(
    "sandbox_server_http_request_seconds",
    "Duration of HTTP requests until the end of the response.",
    ["method", "route"],
    buckets=_CALLS,
    registry=PROCESS,
)
TRANSITION_SECONDS = Histogram(
    "sandbox_server_transition_seconds",
    "Duration of sandbox state changes, by action and resulting state.",
    ["act", "state"],
    buckets=_CALLS,
    registry=PROCESS,
)
QUEUE_WAIT_SECONDS = Histogram(
    "sandbox_server_queue_wait_seconds",
    "Time in the queue of sandboxes that received a slot.",
    ["backend"],
    buckets=_WAITS,
    registry=PROCESS,
)
EVENTS = Counter(
    "sandbox_server_events",
    "Sandbox events by type and cause.",
    ["type", "cause"],
    registry=PROCESS,
)
JOB_LAG_SECONDS = Histogram(
    "sandbox_server_job_lag_seconds",
    "Delay between the due time and the start of jobs.",
    ["kind"],
    buckets=_LAGS,
    registry=PROCESS,
)
JOB_FAILURES = Counter(
    "sandbox_server_job_failures",
    "Failed job attempts; most are retried.",
    ["kind"],
    registry=PROCESS,
)
PROVIDER_SECONDS = Histogram(
    "sandbox_server_provider_call_seconds",
    "Duration of provider calls, including failed ones.",
    ["backend", "call"],
    buckets=_CALLS,
    registry=PROCESS,
)
PROVIDER_ERRORS = Counter(
    "sandbox_server_provider_errors",
    "Failed provider calls.",
    ["backend", "call", "code"],
    registry=PROCESS,
)
FOLLOWERS = Gauge(
    "sandbox_server_followers",
    "Open event streams of this server.",
    registry=PROCESS,
)
FOLLOWERS_CUT_OFF = Counter(
    "sandbox_server_followers_cut_off",
    "Clients of streams that were disconnected because they did not read.",
    registry=PROCESS,
)
LOOP_LAG_SECONDS = Histogram(
    "sandbox_server_event_loop_lag_seconds",
    "Event loop lag.",
    buckets=_LAGS,
    registry=PROCESS,
)


class ProviderCall:
    """Measures a provider call; definitive answers such as not-found are not counted as errors."""

    def __init__(self, backend: str, call: str) -> None:
        self._backend = backend
        self._call = call

    def __enter__(self) -> Self:
        self._began = perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        PROVIDER_SECONDS.labels(self._backend, self._call).observe(perf_counter() - self._began)
        if isinstance(error, SandboxError):
            PROVIDER_ERRORS.labels(self._backend, self._call, error.code).inc()


async def watch_event_loop(*, every: timedelta = _LAG_SAMPLED_EVERY) -> None:
    """Measure the event loop lag until cancelled."""
    while True:
        due = perf_counter() + every.total_seconds()
        await asyncio.sleep(every.total_seconds())
        LOOP_LAG_SECONDS.observe(max(perf_counter() - due, 0))
