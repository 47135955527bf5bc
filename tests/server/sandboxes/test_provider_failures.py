"""What becomes of sandboxes whose provider refuses, has no room, loses its answers or the sandbox itself."""

from datetime import timedelta

import pytest
from e2b import AsyncSandbox

from sandbox_server.domain.errors import BackendRefused, BackendUnavailable
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs import kinds
from sandbox_server.providers.e2b import wire
from sandbox_server.providers.protocol.errors import AnswerLost
from sandbox_server.providers.repository import BackendRepository
from tests.server.support.fault_proxy import answer_with, cut, deliver_twice, lose_answer
from tests.server.support.managed_sandboxes import MINUTE, WISH

pytestmark = pytest.mark.needs_engine

CREATE = "POST /v2/sandboxes"
CONNECT = "POST /v2/sandboxes/"
CHANGE = "POST /sandboxes/"
KILL = "DELETE /sandboxes/"
NO = answer_with(400, '{"code": 400, "message": "not like this"}')
NO_ROOM = answer_with(429, '{"code": 429, "message": "full"}', Retry_After="30")
OUT_OF_ORDER = answer_with(500, "out of order")
LOSSES = [lose_answer, cut, OUT_OF_ORDER]


async def _busy_until(living):
    async with living.sessions() as session:
        return (await BackendRepository(session).get(living.backend_name)).busy_until


@pytest.fixture
def twin(living, engine):
    """Make sandboxes at the provider that say they are ours."""

    def make(sandbox_id):
        labels = {wire.INSTALLATION: living.backend.installation_id, wire.SANDBOX: sandbox_id}
        return AsyncSandbox.create(metadata=labels, **engine.options)

    return make


@pytest.mark.parametrize("fault", LOSSES)
async def test_start__a_lost_answer_is_found_and_adopted(faulty, proxy, fault):
    sandbox_id = await faulty.admitted()
    proxy.on(CREATE, fault)
    with pytest.raises(AnswerLost):
        await faulty.settle(sandbox_id)
    assert (await faulty.row(sandbox_id)).state is State.STARTING

    await faulty.settle(sandbox_id)

    row = await faulty.row(sandbox_id)
    assert row.state is State.RUNNING
    assert [one.id for one in await faulty.backend.list_all()] == [row.backend_sandbox_id]
    assert await (await faulty.inside(sandbox_id)).files.list("/")
    assert row.started_at == row.tried_at


async def test_start__delivered_twice_is_one_start(faulty, proxy):
    proxy.on(CREATE, deliver_twice)
    await faulty.started()
    assert await faulty.provider_states() == ["running"]


async def test_start__a_refusal_fails_with_the_providers_message(faulty, proxy):
    sandbox_id = await faulty.admitted()
    proxy.on(CREATE, NO)

    assert await faulty.settle(sandbox_id) is None

    row = await faulty.row(sandbox_id)
    assert (row.state, row.target) == (State.FAILED, Target.GONE)
    assert row.state_reason == ("Start failed: Backend 'local': answered 400: not like this")
    assert row.expires_at is None
    assert await faulty.job(kinds.ADMISSION, "local")


async def test_start__a_full_provider_requeues_it(faulty, proxy):
    sandbox_id = await faulty.queued(wait=5 * MINUTE)
    waits_until = (await faulty.row(sandbox_id)).queue_expires_at
    await faulty.change(sandbox_id, candidates=["local", "elsewhere"])
    await faulty.let_in(sandbox_id)
    proxy.on(CREATE, NO_ROOM)

    assert await faulty.settle(sandbox_id) == waits_until

    row = await faulty.row(sandbox_id)
    assert (row.state, row.target) == (State.QUEUED, Target.RUNNING)
    assert row.backend is row.tried_at is row.expires_at is None
    assert row.queue_expires_at == waits_until
    assert "full" in row.state_reason
    busy_until = await _busy_until(faulty)
    assert timedelta(seconds=20) < busy_until - await faulty.now() < timedelta(seconds=31)
    assert (await faulty.job(kinds.ADMISSION, "local")).run_at == busy_until
    assert (await faulty.job(kinds.ADMISSION, "elsewhere")).run_at < busy_until


async def test_start__a_full_provider_does_not_requeue_a_sandbox_to_be_paused(faulty, proxy):
    sandbox_id = await faulty.admitted()
    await faulty.want(sandbox_id, Target.PAUSED)
    proxy.on(CREATE, NO_ROOM)
    assert await faulty.settle(sandbox_id) > await faulty.now()
    assert (await faulty.row(sandbox_id)).state is State.STARTING

    await faulty.settle(sandbox_id)

    assert (await faulty.row(sandbox_id)).state is State.PAUSED


async def test_start__a_pause_requested_meanwhile_is_not_lost(faulty, proxy):
    sandbox_id = await faulty.admitted()

    async def be_full_meanwhile(exchange):
        await faulty.want(sandbox_id, Target.PAUSED)
        await NO_ROOM(exchange)

    proxy.on(CREATE, be_full_meanwhile)
    await faulty.settle(sandbox_id)
    assert (await faulty.row(sandbox_id)).state is State.STARTING

    await faulty.settle(sandbox_id)

    assert (await faulty.row(sandbox_id)).state is State.PAUSED


async def test_start__a_provider_that_is_down_requeues_a_first_start(faulty, proxy):
    sandbox_id = await faulty.admitted()
    await proxy.refuse()
    await faulty.settle(sandbox_id)
    assert (await faulty.row(sandbox_id)).state is State.QUEUED

    await proxy.listen()
    await faulty.let_in(sandbox_id)
    await faulty.settle(sandbox_id)

    assert (await faulty.row(sandbox_id)).state is State.RUNNING


async def test_start__an_uncertain_one_keeps_its_slot_until_it_is_known(faulty, proxy):
    sandbox_id = await faulty.admitted()
    proxy.on(CREATE, OUT_OF_ORDER)
    with pytest.raises(AnswerLost):
        await faulty.settle(sandbox_id)
    await proxy.refuse()
    with pytest.raises(BackendUnavailable):
        await faulty.settle(sandbox_id)

    assert (await faulty.row(sandbox_id)).state is State.STARTING


async def test_start__one_that_is_always_cut_off_fails_in_the_end(faulty, proxy):
    sandbox_id = await faulty.admitted()
    proxy.on(CREATE, OUT_OF_ORDER, times=5)
    for attempt in range(1, 5):
        with pytest.raises(AnswerLost):
            await faulty.settle(sandbox_id, attempt=attempt)

    assert await faulty.settle(sandbox_id, attempt=5) is None

    row = await faulty.row(sandbox_id)
    assert row.state is State.FAILED
    assert "Start failed: Backend 'local': answered 500" in row.state_reason


async def test_start__giving_up_leaves_nothing_behind(faulty, proxy):
    sandbox_id = await faulty.admitted()
    proxy.on(CREATE, lose_answer)

    await faulty.settle(sandbox_id, attempt=5)

    assert (await faulty.row(sandbox_id)).state is State.FAILED
    assert await faulty.provider_states() == []


async def test_resume__one_that_is_always_cut_off_fails_in_the_end(faulty, proxy):
    sandbox_id = await faulty.paused()
    retained = (await faulty.row(sandbox_id)).retain_until
    await faulty.want(sandbox_id, Target.RUNNING)
    await faulty.let_in(sandbox_id)
    proxy.on(CONNECT, OUT_OF_ORDER, times=2)
    with pytest.raises(AnswerLost):
        await faulty.settle(sandbox_id, attempt=4)

    assert await faulty.settle(sandbox_id, attempt=5) == retained

    row = await faulty.row(sandbox_id)
    assert (row.state, row.target) == (State.PAUSED, Target.PAUSED)
    assert "Resume failed; the sandbox stays paused" in row.state_reason


async def test_pause__one_that_is_always_cut_off_leaves_it_running_and_is_retried(faulty, proxy):
    sandbox_id = await faulty.started()
    await faulty.want(sandbox_id, Target.PAUSED)
    proxy.on(CHANGE, OUT_OF_ORDER)
    with pytest.raises(AnswerLost):
        await faulty.settle(sandbox_id, attempt=5)
    row = await faulty.row(sandbox_id)
    assert (row.state, row.target) == (State.RUNNING, Target.PAUSED)

    await faulty.settle(sandbox_id, attempt=6)

    assert (await faulty.row(sandbox_id)).state is State.PAUSED


async def test_start__a_repetition_that_returns_a_killed_sandbox_fails(faulty, proxy):
    sandbox_id = await faulty.admitted()
    proxy.on(CREATE, lose_answer)
    with pytest.raises(AnswerLost):
        await faulty.settle(sandbox_id)
    [there] = await faulty.backend.list_all()
    await faulty.backend.kill(there.id)

    await faulty.settle(sandbox_id)

    row = await faulty.row(sandbox_id)
    assert row.state is State.FAILED
    assert "Start failed" in row.state_reason


@pytest.mark.parametrize("known", [True, False])
async def test_start__of_two_with_one_id_the_rows_own_is_kept(living, twin, known):
    sandbox_id = await living.admitted()
    first, second = await twin(sandbox_id), await twin(sandbox_id)
    await living.change(sandbox_id, tried_at=await living.now())
    if known:
        await living.change(sandbox_id, backend_sandbox_id=second.sandbox_id)

    await living.settle(sandbox_id)

    row = await living.row(sandbox_id)
    assert row.state is State.RUNNING
    assert row.backend_sandbox_id == (second if known else first).sandbox_id
    assert [one.id for one in await living.backend.list_all()] == [row.backend_sandbox_id]


@pytest.mark.parametrize("fault", [lose_answer, OUT_OF_ORDER])
@pytest.mark.parametrize("target", [Target.PAUSED, Target.GONE])
async def test_change__a_lost_answer_keeps_the_target(faulty, proxy, fault, target):
    sandbox_id = await faulty.started()
    await faulty.want(sandbox_id, target)
    proxy.on(CHANGE if target is Target.PAUSED else KILL, fault)
    with pytest.raises(AnswerLost):
        await faulty.settle(sandbox_id)

    await faulty.settle(sandbox_id)

    done = target is Target.PAUSED
    assert (await faulty.row(sandbox_id)).state is (State.PAUSED if done else State.STOPPED)
    assert await faulty.provider_states() == (["paused"] if done else [])
    events = (await faulty.events(sandbox_id))[1:]
    assert len(events) == 2
    assert {event.data["reason"] for event in events} == {WISH.reason}


@pytest.mark.parametrize("fault", LOSSES)
async def test_resume__a_lost_answer_is_recorded_with_its_time(faulty, proxy, fault):
    sandbox_id = await faulty.paused()
    left = (await faulty.row(sandbox_id)).remaining
    await faulty.want(sandbox_id, Target.RUNNING)
    await faulty.let_in(sandbox_id)
    proxy.on(CONNECT, fault)
    with pytest.raises(AnswerLost):
        await faulty.settle(sandbox_id)
    in_doubt = await faulty.row(sandbox_id)
    assert in_doubt.state is State.RESUMING
    assert in_doubt.retain_until

    await faulty.settle(sandbox_id)

    row = await faulty.row(sandbox_id)
    assert row.state is State.RUNNING
    assert row.expires_at == row.last_activity_at + left
    assert await faulty.provider_states() == ["running"]


async def test_resume__a_full_provider_lets_it_wait_with_its_deadline(faulty, proxy):
    sandbox_id = await faulty.paused()
    await faulty.want(sandbox_id, Target.RUNNING)
    waits_until = await faulty.now() + 5 * MINUTE
    await faulty.change(sandbox_id, queue_expires_at=waits_until)
    before = await faulty.row(sandbox_id)
    await faulty.let_in(sandbox_id)
    proxy.on(CONNECT, NO_ROOM)

    assert await faulty.settle(sandbox_id) == waits_until

    row = await faulty.row(sandbox_id)
    assert (row.state, row.target) == (State.PAUSED, Target.RUNNING)
    assert (row.remaining, row.retain_until) == (before.remaining, before.retain_until)
    assert row.queued_at == before.queued_at
    assert await _busy_until(faulty) > await faulty.now()


async def test_pause__a_refusal_leaves_it_running_and_is_retried(faulty, proxy):
    sandbox_id = await faulty.started()
    before = await faulty.deadlines(sandbox_id)
    await faulty.want(sandbox_id, Target.PAUSED)
    proxy.on(CHANGE, NO)
    with pytest.raises(BackendRefused):
        await faulty.settle(sandbox_id)

    row = await faulty.row(sandbox_id)
    assert (row.state, row.target) == (State.RUNNING, Target.PAUSED)
    assert "Pause failed and will be retried" in row.state_reason
    assert row.expires_at == before.expires_at

    await faulty.settle(sandbox_id)
    assert (await faulty.row(sandbox_id)).state is State.PAUSED


@pytest.mark.parametrize(
    ("answer", "least"), [(NO_ROOM, timedelta(seconds=20)), (answer_with(429), timedelta(0))]
)
async def test_busy_provider__is_called_again_at_the_time_it_names(faulty, proxy, answer, least):
    sandbox_id = await faulty.started()
    await faulty.want(sandbox_id, Target.GONE)
    proxy.on(KILL, answer)
    before = await faulty.now()

    at = await faulty.settle(sandbox_id)

    assert at > before + least
    await faulty.settle(sandbox_id)
    assert (await faulty.row(sandbox_id)).state is State.STOPPED


@pytest.mark.parametrize("target", [Target.PAUSED, Target.RUNNING])
async def test_missing_sandbox__one_gone_from_its_provider_fails_with_a_reason(living, target):
    sandbox_id = await (living.started() if target is Target.PAUSED else living.paused())
    await living.backend.kill((await living.row(sandbox_id)).backend_sandbox_id)
    await living.want(sandbox_id, target)
    if target is Target.RUNNING:
        await living.let_in(sandbox_id)

    await living.settle(sandbox_id)

    row = await living.row(sandbox_id)
    assert (row.state, row.target) == (State.FAILED, Target.GONE)
    assert row.state_reason == "Lost: provider 'local' no longer has the sandbox."
    assert row.access_sealed is None


async def test_missing_sandbox__a_late_create_of_an_ended_row_is_killed(living, twin):
    sandbox_id = await living.started()
    await living.want(sandbox_id, Target.GONE)
    await living.settle(sandbox_id)
    await twin(sandbox_id)

    assert await living.settle(sandbox_id) is None

    assert await living.provider_states() == []
    assert (await living.row(sandbox_id)).state is State.STOPPED
