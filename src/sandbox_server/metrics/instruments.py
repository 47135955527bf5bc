"""What this process tells Prometheus about its own work.

No label has a value that callers choose: no ids, no names of tenants, no paths but the routes' own.
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

# A second line for each count, which nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]

PROCESS = CollectorRegistry()
ProcessCollector(registry=PROCESS)
GCCollector(registry=PROCESS)

HTTP_REQUESTS = Counter(
    "sandbox_server_http_requests",
    "Requests that were answered, by their route and the status they got.",
    ["method", "route", "status"],
    registry=PROCESS,
)
HTTP_SECONDS = Histogram(
    "sandbox_server_http_request_seconds",
    "How long requests took until the end of their answers.",
    ["method", "route"],
    buckets=_CALLS,
    registry=PROCESS,
)
TRANSITION_SECONDS = Histogram(
    "sandbox_server_transition_seconds",
    "How long it took to carry out what was wanted of a sandbox, by what was done and the state it led to.",
    ["act", "state"],
    buckets=_CALLS,
    registry=PROCESS,
)
QUEUE_WAIT_SECONDS = Histogram(
    "sandbox_server_queue_wait_seconds",
    "How long sandboxes waited for the place that they got.",
    ["backend"],
    buckets=_WAITS,
    registry=PROCESS,
)
EVENTS = Counter(
    "sandbox_server_events",
    "What happened to sandboxes, and what caused it.",
    ["type", "cause"],
    registry=PROCESS,
)
JOB_LAG_SECONDS = Histogram(
    "sandbox_server_job_lag_seconds",
    "How long after they were due jobs were begun.",
    ["kind"],
    buckets=_LAGS,
    registry=PROCESS,
)
JOB_FAILURES = Counter(
    "sandbox_server_job_failures",
    "Attempts at jobs that failed, most of which are repeated.",
    ["kind"],
    registry=PROCESS,
)
PROVIDER_SECONDS = Histogram(
    "sandbox_server_provider_call_seconds",
    "How long providers took for calls, failed ones too.",
    ["backend", "call"],
    buckets=_CALLS,
    registry=PROCESS,
)
PROVIDER_ERRORS = Counter(
    "sandbox_server_provider_errors",
    "Calls to providers that failed.",
    ["backend", "call", "code"],
    registry=PROCESS,
)
FOLLOWERS = Gauge(
    "sandbox_server_followers",
    "Streams that are followed at this server.",
    registry=PROCESS,
)
FOLLOWERS_CUT_OFF = Counter(
    "sandbox_server_followers_cut_off",
    "Followers that took nothing of what was sent to them, and were cut off.",
    registry=PROCESS,
)
LOOP_LAG_SECONDS = Histogram(
    "sandbox_server_event_loop_lag_seconds",
    "How much later than asked for the event loop woke a task: as long all others waited.",
    buckets=_LAGS,
    registry=PROCESS,
)


class ProviderCall:
    """Measures a call to a provider; an answer that settles the matter is none of its errors."""

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
    """Measure how late the event loop wakes its sleepers, until cancelled."""
    while True:
        due = perf_counter() + every.total_seconds()
        await asyncio.sleep(every.total_seconds())
        LOOP_LAG_SECONDS.observe(max(perf_counter() - due, 0))
