import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import BackendBusy, BackendRefused, BackendUnavailable
from sandbox_server.providers.protocol.errors import AnswerLost
from tests.engine.polling import until
from tests.server.support.fault_proxy import (
    answer_twice,
    answer_with,
    cut,
    deliver_twice,
    hold,
    lose_answer,
    stall,
)

pytestmark = pytest.mark.needs_engine

CREATE = "POST /v2/sandboxes"
INFO = "GET /sandboxes/nobody"
LIST = "GET /v2/sandboxes"
MOMENT = timedelta(seconds=0.3)
GATEWAY_PAGE = "<html>Bad luck</html>"


@pytest.fixture
def through(backend_at, proxy):
    """Reach the engine through the proxy."""
    return backend_at(proxy.url)


@pytest.fixture
def impatient(backend_at, proxy):
    """Reach the engine through the proxy, and wait for nothing."""
    return backend_at(proxy.url, question_limit=MOMENT, work_limit=MOMENT)


@pytest.mark.parametrize("fault", [lose_answer, cut])
async def test_create__a_lost_answer_is_found_and_not_repeated(through, proxy, wanted, fault):
    proxy.on(CREATE, fault)
    with pytest.raises(AnswerLost):
        await through.create(wanted)
    [found] = await through.find(wanted.sandbox_id)
    assert (await through.create(wanted)).provider_id == found.id
    assert len(await through.list_all()) == 1


async def test_snapshot__a_lost_answer_is_found_by_name(through, proxy, wanted):
    source = await through.create(wanted)
    name = wanted.sandbox_id
    proxy.on("POST /sandboxes/", lose_answer)
    with pytest.raises(AnswerLost):
        await through.snapshot(source.provider_id, name=name)
    found = await through.find_snapshot(name)
    assert found == await through.snapshot(source.provider_id, name=name)
    await through.delete_snapshot(found)
    assert await through.find_snapshot(name) is None


@pytest.mark.parametrize("fault", [hold, stall])
async def test_slow_provider__a_change_is_uncertain_and_a_read_is_not(
    impatient, proxy, wanted, fault
):
    proxy.on(CREATE, fault)
    proxy.on(LIST, fault)
    with pytest.raises(AnswerLost, match=r"did not answer within 0\.3 s"):
        await impatient.create(wanted)
    with pytest.raises(BackendUnavailable) as caught:
        await impatient.list_all()
    assert not isinstance(caught.value, AnswerLost)


async def test_provider_down__nothing_was_changed(through, proxy, wanted):
    access = await through.create(wanted)
    await proxy.refuse()
    with suppress(BackendUnavailable):  # takes the connection that was left open, and is closed now
        await through.info(access.provider_id)
    for call in (
        through.pause(access.provider_id),
        through.info(access.provider_id),
        through.is_answering(access),
    ):
        with pytest.raises(BackendUnavailable, match="cannot be reached") as caught:
            await call
        assert not isinstance(caught.value, AnswerLost)
    await proxy.listen()
    assert await through.is_answering(access)


@pytest.mark.parametrize(
    ("status", "headers", "retry_after"),
    [
        (429, {"Retry_After": "7"}, timedelta(seconds=7)),
        (429, {}, None),
        (503, {"Retry_After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
    ],
)
async def test_busy_provider__names_the_time_of_the_next_attempt(
    through, proxy, wanted, status, headers, retry_after
):
    proxy.on(CREATE, answer_with(status, GATEWAY_PAGE, **headers))
    with pytest.raises(BackendBusy, match="Bad luck") as caught:
        await through.create(wanted)
    assert caught.value.retry_after == retry_after
    assert await through.find(wanted.sandbox_id) == []


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_provider_error__a_change_is_uncertain_and_a_read_is_not(
    through, proxy, wanted, status
):
    proxy.on(CREATE, answer_with(status, GATEWAY_PAGE))
    proxy.on(LIST, answer_with(status, '{"code": 1, "message": "out of order"}'))
    with pytest.raises(AnswerLost, match=f"answered {status}: <html>Bad luck"):
        await through.create(wanted)
    with pytest.raises(BackendUnavailable, match="out of order") as caught:
        await through.list_all()
    assert not isinstance(caught.value, AnswerLost)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (409, "idempotency_in_progress", AnswerLost),
        (409, "idempotency_request_mismatch", BackendRefused),
        (500, "sandbox_create_refused", BackendRefused),
        (501, "not_implemented", BackendRefused),
    ],
)
async def test_provider_error__the_message_takes_precedence_over_the_status(
    through, proxy, wanted, status, code, error
):
    body = f'{{"code": {status}, "message": "no", "error_code": "{code}"}}'
    proxy.on(CREATE, answer_with(status, body))
    with pytest.raises(error):
        await through.create(wanted)


async def test_invalid_answer__counts_as_lost(through, proxy, wanted):
    proxy.on(CREATE, answer_with(201, "{}"))
    with pytest.raises(AnswerLost):
        await through.create(wanted)
    proxy.on(LIST, answer_with(200, GATEWAY_PAGE))
    with pytest.raises(BackendUnavailable):
        await through.list_all()


async def test_duplicate_answer__is_not_matched_to_the_next_request(through, proxy, new_sandbox):
    proxy.on(CREATE, answer_twice)
    first = await through.create(new_sandbox())
    second = await through.create(new_sandbox())
    assert {first.provider_id, second.provider_id} == {one.id for one in await through.list_all()}


async def test_duplicate_request__is_carried_out_once(through, proxy, wanted):
    proxy.on(CREATE, deliver_twice)
    access = await through.create(wanted)
    assert [one.id for one in await through.list_all()] == [access.provider_id]


async def test_provider_calls__are_not_repeated_automatically(through, proxy, wanted):
    proxy.on(CREATE, answer_with(503, Should_Retry="true", Retry_After="0"), times=10)
    with pytest.raises(BackendBusy):
        await through.create(wanted)
    assert proxy.seen == [CREATE]


async def test_unresponsive_sandbox__differs_from_a_provider_in_trouble(
    through, impatient, proxy, wanted
):
    access = await through.create(wanted)
    proxy.on("GET /health", hold)
    assert not await impatient.is_answering(access)
    proxy.on("GET /health", answer_with(500))
    with pytest.raises(BackendUnavailable):
        await through.is_answering(access)


async def test_slow_provider__does_not_delay_another_at_the_same_address(backend_at, proxy, wanted):
    slow, other = backend_at(proxy.url, question_limit=timedelta(hours=1)), backend_at(proxy.url)
    as_many_as_the_sdk_connects = 200
    proxy.on(INFO, hold, times=1000)
    held = [asyncio.create_task(slow.info("nobody")) for _ in range(210)]
    await until(lambda: proxy.has_seen(INFO, times=as_many_as_the_sdk_connects), timeout=30)

    access = await other.create(wanted)

    assert (await other.find(wanted.sandbox_id))[0].id == access.provider_id
    assert not any(one.done() for one in held)
    for one in held:
        one.cancel()
    await asyncio.gather(*held, return_exceptions=True)
