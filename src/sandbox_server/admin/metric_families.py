"""What is true of all servers on a database; each of them tells the same, so that one takes the maximum and no sum."""

from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from sandbox_server.admin.overview import ReadinessCheck
from sandbox_server.admin.stats_repository import Totals
from sandbox_server.db.session import PoolUse
from sandbox_server.domain.capacity import occupies_slot

_NOWHERE = ""  # a backend that no sandbox has yet: a fork whose copy is still being taken


def describe_version() -> Metric:
    return InfoMetricFamily(
        "sandbox_server", "Which server this is.", {"version": version("sandbox-server")}
    )


def describe_readiness(readiness: ReadinessCheck) -> Metric:
    ready = not readiness.reasons
    return GaugeMetricFamily(
        "sandbox_server_ready", "Whether requests can be served, as /readyz says.", float(ready)
    )


def describe_pool(use: PoolUse) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "sandbox_server_database_connections_used",
        "Connections to the database that are at work.",
        use.used,
    )
    yield GaugeMetricFamily(
        "sandbox_server_database_connections_limit",
        "Connections to the database that this server may open.",
        use.limit,
    )


def describe_totals(totals: Totals) -> Iterator[Metric]:
    yield from _sandboxes(totals)
    yield from _queues(totals)
    yield from _backends(totals)
    yield from _jobs(totals)


def _sandboxes(totals: Totals) -> Iterator[Metric]:
    living = _gauge("sandboxes", "Sandboxes that have not ended.", "backend", "state")
    for count in totals.counts:
        living.add_metric([count.backend or _NOWHERE, count.state], count.count)
    yield living


def _queues(totals: Totals) -> Iterator[Metric]:
    depth = _gauge(
        "queue_depth", "Sandboxes that wait for a place, to start or to go on.", "backend"
    )
    oldest = _gauge(
        "queue_oldest_seconds", "How long the one has waited that waits longest.", "backend"
    )
    for queue in totals.queues:
        depth.add_metric([queue.backend or _NOWHERE], queue.depth)
        oldest.add_metric([queue.backend or _NOWHERE], queue.oldest.total_seconds())
    yield from (depth, oldest)


def _backends(totals: Totals) -> Iterator[Metric]:
    up = _gauge("backend_up", "Whether a backend answers.", "backend")
    drained = _gauge("backend_drained", "Whether a backend gets no new sandboxes.", "backend")
    capacity = _gauge("backend_capacity", "Places that a backend has.", "backend")
    taken = _gauge("backend_places_taken", "Places at a backend that are taken.", "backend")
    places = _places_taken(totals)
    for backend in totals.backends:
        up.add_metric([backend.name], backend.state == "up")
        drained.add_metric([backend.name], backend.drained)
        capacity.add_metric([backend.name], backend.capacity)
        taken.add_metric([backend.name], places[backend.name])
    yield from (up, drained, capacity, taken)


def _places_taken(totals: Totals) -> defaultdict[str | None, int]:
    keeping = {backend.name for backend in totals.backends if backend.paused_takes_place}
    taken: defaultdict[str | None, int] = defaultdict(int)
    for count in totals.counts:
        if occupies_slot(count.state, keeps_slots=count.backend in keeping):
            taken[count.backend] += count.count
    return taken


def _jobs(totals: Totals) -> Iterator[Metric]:
    due = _gauge("jobs_due", "Jobs that are due and that nobody works on.", "kind")
    late = _gauge(
        "jobs_oldest_due_seconds", "How long the one has been due that is longest.", "kind"
    )
    for kind in totals.due:
        due.add_metric([kind.kind], kind.count)
        late.add_metric([kind.kind], kind.oldest.total_seconds())
    yield from (due, late)
    dead = _gauge("jobs_dead", "Jobs that are left alone since every attempt failed.")
    dead.add_metric([], totals.jobs_dead)
    yield dead


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sandbox_server_{name}", text, labels=labels)
