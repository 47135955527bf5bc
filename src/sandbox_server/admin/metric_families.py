"""Metrics shared by all servers of a database: each server reports the same values, so aggregate with max, not sum."""

from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from sandbox_server.admin.overview import ReadinessCheck
from sandbox_server.admin.stats_repository import Totals
from sandbox_server.db.session import PoolUse
from sandbox_server.domain.capacity import occupies_slot

_NO_BACKEND = ""  # a fork whose snapshot is still being taken has no backend yet


def describe_version() -> Metric:
    return InfoMetricFamily(
        "sandbox_server", "Version of the server.", {"version": version("sandbox-server")}
    )


def describe_readiness(readiness: ReadinessCheck) -> Metric:
    ready = not readiness.reasons
    return GaugeMetricFamily(
        "sandbox_server_ready", "1 if the server is ready, as reported by /readyz.", float(ready)
    )


def describe_pool(use: PoolUse) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "sandbox_server_database_connections_used",
        "Database connections in use.",
        use.used,
    )
    yield GaugeMetricFamily(
        "sandbox_server_database_connections_limit",
        "Maximum number of database connections of this server.",
        use.limit,
    )


def describe_totals(totals: Totals) -> Iterator[Metric]:
    yield from _sandboxes(totals)
    yield from _queues(totals)
    yield from _backends(totals)
    yield from _jobs(totals)


def _sandboxes(totals: Totals) -> Iterator[Metric]:
    gauge = _gauge(
        "sandboxes",
        "Sandboxes by backend and state, without deleted and failed ones.",
        "backend",
        "state",
    )
    for count in totals.counts:
        gauge.add_metric([count.backend or _NO_BACKEND, count.state], count.count)
    yield gauge


def _queues(totals: Totals) -> Iterator[Metric]:
    depth = _gauge("queue_depth", "Sandboxes waiting for a slot, to start or to resume.", "backend")
    oldest = _gauge("queue_oldest_seconds", "Age of the oldest queued sandbox.", "backend")
    for queue in totals.queues:
        depth.add_metric([queue.backend or _NO_BACKEND], queue.depth)
        oldest.add_metric([queue.backend or _NO_BACKEND], queue.oldest.total_seconds())
    yield from (depth, oldest)


def _backends(totals: Totals) -> Iterator[Metric]:
    up = _gauge("backend_up", "1 if the backend is reachable.", "backend")
    drained = _gauge(
        "backend_drained", "1 if the backend is drained and receives no new sandboxes.", "backend"
    )
    capacity = _gauge("backend_capacity", "Slots of the backend.", "backend")
    taken = _gauge("backend_places_taken", "Occupied slots of the backend.", "backend")
    occupied = _occupied_slots(totals)
    for backend in totals.backends:
        up.add_metric([backend.name], backend.state == "up")
        drained.add_metric([backend.name], backend.drained)
        capacity.add_metric([backend.name], backend.capacity)
        taken.add_metric([backend.name], occupied[backend.name])
    yield from (up, drained, capacity, taken)


def _occupied_slots(totals: Totals) -> defaultdict[str | None, int]:
    keeping = {backend.name for backend in totals.backends if backend.paused_takes_place}
    taken: defaultdict[str | None, int] = defaultdict(int)
    for count in totals.counts:
        if occupies_slot(count.state, keeps_slots=count.backend in keeping):
            taken[count.backend] += count.count
    return taken


def _jobs(totals: Totals) -> Iterator[Metric]:
    due = _gauge("jobs_due", "Due jobs that no worker has claimed.", "kind")
    late = _gauge("jobs_oldest_due_seconds", "Age of the oldest due job.", "kind")
    for kind in totals.due:
        due.add_metric([kind.kind], kind.count)
        late.add_metric([kind.kind], kind.oldest.total_seconds())
    yield from (due, late)
    dead = _gauge("jobs_dead", "Dead jobs: every attempt failed.")
    dead.add_metric([], totals.jobs_dead)
    yield dead


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sandbox_server_{name}", text, labels=labels)
