"""What is measured where the work is done, at a real provider."""

import asyncio
import time
from contextlib import suppress
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import BackendError
from sandbox_server.metrics.instruments import PROCESS, watch_event_loop
from tests.engine.polling import until
from tests.server.support.fault_proxy import answer_with, lose_answer
from tests.server.support.in_process_server import running_server
from tests.server.support.managed_sandboxes import new_living

pytestmark = pytest.mark.needs_engine


def value(name, **labels):
    return PROCESS.get_sample_value(f"sandbox_server_{name}", labels) or 0


async def rises(name, *, above, **labels):
    async def has_risen():
        return value(name, **labels) > above

    await until(has_risen, timeout=60)


@pytest.fixture
async def server(database, sessions, backend_at):
    living = await new_living(sessions, backend_at(name="measured"))
    async with running_server(database, living) as server:
        yield server


async def test_metrics__each_phase_of_a_sandbox_is_measured(server):
    pausing = {"act": "pause", "state": "paused"}
    pauses = value("transition_seconds_count", **pausing)
    events = value("events_total", type="sandbox.paused", cause="request")
    jobs = value("job_lag_seconds_count", kind="admission")
    row = await server.paused()
    await server.controller.resume(server.caller, row.id)
    await server.controller.delete(server.caller, row.id)

    assert value("transition_seconds_count", **pausing) == pauses + 1
    assert value("events_total", type="sandbox.paused", cause="request") == events + 1
    assert value("queue_wait_seconds_count", backend="measured") == 2  # to start, and to resume
    for call in ("create", "pause", "connect", "kill"):
        await rises("provider_call_seconds_sum", above=0, backend="measured", call=call)
    # A place was free after the pause.
    await rises("job_lag_seconds_count", above=jobs, kind="admission")


async def test_metrics__provider_failures_are_counted_by_code(backend_at, proxy, new_sandbox):
    backend = backend_at(proxy.url, name="failing")
    for fault in (lose_answer, answer_with(429)):
        proxy.on("POST /v2/sandboxes", fault)
        with pytest.raises(BackendError):
            await backend.create(new_sandbox())
    with suppress(BackendError):
        await backend.info("none")  # an answer like any other

    asked = {"backend": "failing", "call": "create"}
    told = {"backend": "failing", "call": "info"}
    assert value("provider_call_seconds_count", **asked) == 2
    assert value("provider_errors_total", code="answer-lost", **asked) == 1
    assert value("provider_errors_total", code="backend-busy", **asked) == 1
    assert value("provider_call_seconds_count", **told) == 1
    errors = [
        sample
        for metric in PROCESS.collect()
        for sample in metric.samples
        if sample.name == "sandbox_server_provider_errors_total"
    ]
    assert not [one for one in errors if told.items() <= one.labels.items()]


async def test_metrics__a_blocked_event_loop_is_visible():
    before = value("event_loop_lag_seconds_sum")
    watching = asyncio.create_task(watch_event_loop(every=timedelta()))
    await asyncio.sleep(0)
    time.sleep(0.2)  # noqa: ASYNC251 - that is what is to be seen
    await rises("event_loop_lag_seconds_sum", above=before + 0.19)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
