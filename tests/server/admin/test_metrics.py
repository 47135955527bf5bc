"""`/metrics`: content and access."""

from dataclasses import replace

import httpx
import pytest
from pydantic import SecretStr

from sandbox_server.admin.metrics_exporter import MetricsExporter
from sandbox_server.admin.overview import Overview
from sandbox_server.app import create_app
from sandbox_server.db.models import Job
from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.state import State, Target
from tests.server.http.test_problems import assert_problem
from tests.server.support.metrics_reader import labelled, read_metrics, samples_in
from tests.server.support.rows import add_backend, add_sandbox, find_tenant, now

PAUSED = {"state": State.PAUSED, "target": Target.PAUSED, "expires_at": None}


def from_peer(app, address, **headers):
    """Call the app from this client address."""
    transport = httpx.ASGITransport(app, client=(address, 40000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


@pytest.fixture
def guarded(components):
    """Configure a metrics token."""
    settings = components.settings.model_copy(update={"metrics_token": SecretStr("t0ken")})
    return create_app(replace(components, settings=settings))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
async def test_metrics__local_requests_are_allowed(app, address):
    async with from_peer(app, address) as peer:
        answer = await peer.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert samples_in(answer.text)[("database_connections_limit",)] >= 2


@pytest.mark.parametrize(
    ("address", "headers"),
    [
        ("192.0.2.7", {}),
        ("192.0.2.7", {"X-Forwarded-For": "127.0.0.1"}),
        ("127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}),
        ("127.0.0.1", {"Forwarded": "for=127.0.0.1"}),
        ("127.0.0.1", {"X-Real-IP": "127.0.0.1"}),
        ("127.0.0.1", {"Via": "1.1 proxy"}),
        ("127.0.0.1", {"Host": "sandboxes.example.com"}),
        ("127.0.0.1", {"Origin": "https://app.example.com"}),
        ("nonsense", {}),
    ],
)
async def test_metrics__other_and_proxied_requests_are_rejected(app, address, headers):
    async with from_peer(app, address, **headers) as peer:
        answer = await peer.get("/metrics")
    assert_problem(answer, status=401, code="metrics-refused")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_metrics__the_token_gives_access_from_anywhere(guarded):
    async with from_peer(guarded, "192.0.2.7", Authorization="Bearer t0ken") as prometheus:
        assert (await prometheus.get("/metrics")).status_code == 200


@pytest.mark.parametrize("sent", ["", "Bearer other", "Bearer t0ken2", "Bearer \u00e9"])
async def test_metrics__with_a_token_set_local_requests_need_it_too(guarded, sent):
    headers = {"Authorization": sent.encode()} if sent else {}
    async with from_peer(guarded, "127.0.0.1", **headers) as local:
        assert_problem(await local.get("/metrics"), status=401, code="metrics-refused")


async def test_metrics__an_api_key_is_not_accepted(guarded, make_key):
    async with from_peer(guarded, "127.0.0.1", **{"X-API-Key": await make_key()}) as admin:
        assert (await admin.get("/metrics")).status_code == 401


async def test_metrics__requests_are_labelled_by_route_and_not_by_path(app, admin, stranger):
    async def count():
        async with from_peer(app, "127.0.0.1") as local:
            return samples_in((await local.get("/metrics")).text)

    before = labelled(await count(), "http_requests_total")
    for number in range(3):
        await admin.get(f"/v1/sandboxes/{number:020}")
        await admin.get(f"/v1/nothing/{number}")
        await stranger.get(f"/v1/sandboxes/{number:020}")
        await stranger.request(f"STRANGE{number}", "/v1/sandboxes")
    await admin.get("/v1/backends")

    samples = await count()
    after = labelled(samples, "http_requests_total")
    grown = {labels: value - before.get(labels, 0) for labels, value in after.items()}
    assert grown["GET", "/v1/sandboxes/{sandbox_id}", "404"] == 3
    assert grown["GET", "/v1/backends", "200"] == 1
    assert grown["GET", "none", "404"] == grown["GET", "none", "401"] == 3
    assert grown["other", "none", "401"] == 3
    assert not [labels for name, *labels in samples if "00000" in str(labels)]


async def test_metrics__agree_with_the_stats(app, admin, sessions):
    tenant_id = await find_tenant(sessions)
    await add_backend(sessions, capacity=4)
    await add_backend(
        sessions, "keeping", state="down", drained=True, paused_takes_place=True, capacity=7
    )
    for name in ("local", "keeping"):
        await add_sandbox(sessions, tenant_id, backend=name)
        await add_sandbox(sessions, tenant_id, backend=name, **PAUSED)
        await add_sandbox(sessions, tenant_id, backend=name, **PAUSED | {"target": Target.RUNNING})
        gone = {"state": State.STOPPED, "target": Target.GONE, "ended_at": now()}
        await add_sandbox(sessions, tenant_id, backend=name, **gone)
    waiting = {"state": State.QUEUED, "expires_at": None, "queued_at": now()}
    await add_sandbox(sessions, tenant_id, candidates=["local", "keeping"], **waiting)
    async with sessions.begin() as session:
        session.add(Job(kind="sandbox", subject="x", attempts=9, last_error="!", dead_at=now()))
        session.add(Job(kind="patrol", subject="local", run_at=now()))

    async with from_peer(app, "127.0.0.1") as local:
        samples = samples_in((await local.get("/metrics")).text)
    stats = (await admin.get("/v1/stats")).json()

    for one in stats["backends"]:
        name, at = one["name"], (one["name"],)
        counts = labelled(samples, "sandboxes")
        found = {state: count for (backend, state), count in counts.items() if backend == name}
        assert found == one["sandboxes"]
        assert labelled(samples, "backend_places_taken")[at] == one["taken"]
        assert labelled(samples, "backend_capacity")[at] == one["capacity"]
        assert labelled(samples, "backend_drained")[at] == one["drained"]
        assert labelled(samples, "backend_up")[at] == (one["state"] == "up")
        assert labelled(samples, "queue_depth")[at] == one["queue"]["depth"]
        assert 0 <= labelled(samples, "queue_oldest_seconds")[at] <= one["queue"]["oldest_age_s"]
    assert samples["jobs_dead",] == stats["jobs_dead"] == 1
    assert labelled(samples, "jobs_due") == {("patrol",): 1}
    assert labelled(samples, "jobs_oldest_due_seconds")["patrol",] >= 0
    ready = (await admin.get("/readyz")).status_code == 200
    assert samples["ready",] == ready


async def test_metrics__without_a_database_the_rest_is_rendered(components):
    nowhere = create_sessions(create_engine("postgresql://nobody@127.0.0.1:9/nothing"))
    samples = await read_metrics(MetricsExporter(nowhere, Overview(nowhere, components.backends)))
    assert samples["ready",] == 0
    assert ("jobs_dead",) not in samples
    assert ("database_connections_used",) in samples


async def test_metrics__a_missing_database_is_reported_as_not_ready(components, server_url):
    elsewhere = create_sessions(create_engine(server_url.replace("/postgres?", "/nothing?")))
    samples = await read_metrics(
        MetricsExporter(elsewhere, Overview(elsewhere, components.backends))
    )
    assert samples["ready",] == 0


async def test_metrics__the_database_is_queried_once_per_interval(components, sessions):
    time = [0.0]
    overview = Overview(sessions, components.backends)
    metrics_exporter = MetricsExporter(sessions, overview, clock=lambda: time[0])
    assert labelled(await read_metrics(metrics_exporter), "backend_up") == {}
    await add_backend(sessions)
    assert labelled(await read_metrics(metrics_exporter), "backend_up") == {}
    time[0] = 60
    assert labelled(await read_metrics(metrics_exporter), "backend_up") == {("local",): 1}
