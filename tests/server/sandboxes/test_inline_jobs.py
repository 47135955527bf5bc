from datetime import timedelta

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.errors import NotReady
from sandbox_server.domain.requests import Idempotency, SandboxRequest
from sandbox_server.domain.state import State
from sandbox_server.jobs.kinds import ADMISSION
from sandbox_server.jobs.repository import JobRepository
from tests.server.support.managed_sandboxes import MINUTE

pytestmark = pytest.mark.needs_engine

NO_TIME = timedelta(0)
WANTED = SandboxRequest(template="base")
KEY = Idempotency.of("once", method="POST", path="/", body={})


@pytest.fixture
def hasty(server, verbs_of):
    """Use a server's sandboxes without waiting for any."""
    return verbs_of(server, patience=NO_TIME)


async def only(server):
    async with server.living.sessions() as session:
        return (await session.scalars(select(Sandbox))).one()


async def test_wait_zero__a_sandbox_that_cannot_be_requested_again_is_cancelled(server, hasty):
    await server.set_capacity(0)
    with pytest.raises(NotReady):
        await hasty.create(server.caller, WANTED, idempotency=None)
    await server.settled((await only(server)).id, State.STOPPED)


async def test_wait_zero__a_sandbox_that_can_be_requested_again_stays_queued(
    server, hasty, verbs_of
):
    await server.set_capacity(0)
    for _ in range(2):
        with pytest.raises(NotReady):
            await hasty.create(server.caller, WANTED, idempotency=KEY)
    assert (await only(server)).state is State.QUEUED

    await server.set_capacity(1)
    async with server.living.sessions.begin() as session:
        await JobRepository(session).due(ADMISSION, "local")
    patient = verbs_of(server, patience=MINUTE)
    row = await patient.create(server.caller, WANTED, idempotency=KEY)
    assert row.state is State.RUNNING


async def test_wait_zero__a_paused_sandbox_without_a_slot_is_not_ready(server, hasty):
    row = await server.paused()
    await server.set_capacity(0)
    for ask in (
        hasty.connect(server.caller, row.id),
        hasty.wake(server.caller, row.id),
        hasty.run_command(server.caller, row.id, "true", timeout=MINUTE),
    ):
        with pytest.raises(NotReady) as refused:
            await ask
        assert refused.value.retry_after is not None
