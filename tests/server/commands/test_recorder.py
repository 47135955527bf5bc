"""The recorder stores output exactly once, across outages of the database and its connection."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import select

from sandbox_server.commands.command_log import CommandLog
from sandbox_server.commands.recorder import Limits, Recorder
from sandbox_server.commands.recording_repository import LogWrite, NewRecord, RecordingRepository
from sandbox_server.commands.retention import SMALLEST_BOUND
from sandbox_server.db.models import Command, Sandbox, Tenant
from sandbox_server.db.session import create_engine, create_sessions, without_transaction
from sandbox_server.domain.commands import CommandState
from sandbox_server.domain.ids import new_id
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import RecordType
from tests.server.commands.lossy_source import LossyPostgres

MINUTE = timedelta(minutes=1)
STORE = "INSERT INTO command_output"


class Told:
    """A command whose output tests write."""

    def __init__(self, row):
        self.row = row
        self.log = CommandLog(bound=SMALLEST_BOUND)
        self.is_forgotten = False
        self.settled = asyncio.Event()

    def ack(self, batch, grown):
        self.row.last_seq = grown.last_seq
        self.settled.set()

    def forget(self):
        self.is_forgotten = True
        self.settled.set()

    def write(self, recorder, content):
        self.settled.clear()
        self.log.receive(RecordType.STDOUT, content)
        recorder.schedule(self)

    def end(self, recorder):
        self.settled.clear()
        self.log.note(RecordType.EXIT, {}, state=CommandState.EXITED, exit_code=0)
        recorder.schedule(self, now=True)

    async def stored(self):
        async with asyncio.timeout(60):
            await self.settled.wait()


@pytest.fixture
async def lossy_database(database_url):
    async with LossyPostgres(database_url) as lossy_database:
        yield lossy_database


@pytest.fixture
async def recorder(lossy_database):
    engine = create_engine(lossy_database.url)
    recorder = Recorder(create_sessions(engine), name="me", lease=MINUTE)
    yield recorder
    await recorder.close()
    await engine.dispose()


@pytest.fixture
async def add(sessions):
    """Insert running commands with a recorder, each for its own tenant by default."""

    async def add(by="me", tenant_id=None):
        own = tenant_id or new_id()
        async with sessions.begin() as session:
            if tenant_id is None:
                session.add(Tenant(id=own, name=own, max_running=9, max_queued=9))
                await session.flush()
            sandbox = Sandbox(id=new_id(), tenant_id=own, template="base", timeout=MINUTE)
            session.add(sandbox)
            await session.flush()
            columns = {"id": new_id(), "tenant_id": own, "sandbox_id": sandbox.id, "cmd": "true"}
            row = await RecordingRepository(session).add(by=by, lease=MINUTE, **columns)
        return Told(row)

    return add


async def log_of(sessions, told):
    async with without_transaction(sessions) as session:
        output = CommandOutputRepository(session)
        return (await output.list_after(told.row.id, after=0, limit=1000)).records


async def contents(sessions, told):
    return b"".join(record.content for record in await log_of(sessions, told))


async def test_recorder__a_statement_without_a_response_is_not_repeated(
    recorder, lossy_database, add, sessions
):
    told = await add()
    told.write(recorder, b"one ")
    await told.stored()
    lossy_database.lose_answer_to(STORE)
    told.write(recorder, b"two ")
    async with asyncio.timeout(30):
        await lossy_database.lost.wait()
    told.write(recorder, b"three")
    told.end(recorder)
    async with asyncio.timeout(30):
        await recorder.flush()
    records = await log_of(sessions, told)
    assert b"".join(record.content for record in records) == b"one two three"
    assert records[-1].type is RecordType.EXIT
    assert [record.seq for record in records] == list(range(1, len(records) + 1))


async def test_recorder__an_end_without_a_response_is_known_to_be_stored(
    recorder, lossy_database, add, sessions
):
    told = await add()
    lossy_database.lose_answer_to(STORE)
    told.end(recorder)
    await told.stored()
    assert lossy_database.lost.is_set()
    assert not told.is_forgotten
    assert [record.type for record in await log_of(sessions, told)] == [RecordType.EXIT]


async def test_recorder__output_during_a_database_outage_is_stored_afterwards(
    recorder, lossy_database, add, sessions
):
    told = await add()
    told.write(recorder, b"one ")
    await told.stored()
    lossy_database.close()
    told.write(recorder, b"two ")
    told.write(recorder, b"three")
    await asyncio.sleep(0)
    lossy_database.open()
    await told.stored()
    async with asyncio.timeout(30):
        await recorder.flush()
    assert await contents(sessions, told) == b"one two three"


async def test_recorder__only_the_lease_holder_writes(recorder, add, sessions):
    others = await add(by="another")
    mine = await add(tenant_id=others.row.tenant_id)
    others.write(recorder, b"not mine")
    mine.write(recorder, b"mine")
    await others.stored()
    await mine.stored()
    assert others.is_forgotten
    assert not mine.is_forgotten
    assert await contents(sessions, others) == b""
    assert await contents(sessions, mine) == b"mine"


async def test_recorder__numbers_of_a_tenant_have_no_gaps_or_duplicates(recorder, add, sessions):
    first = await add()
    every = [first, *[await add(tenant_id=first.row.tenant_id) for _ in range(9)]]
    for number in range(5):
        for told in every:
            told.write(recorder, b"%d\n" % number)
        await every[number].stored()
    async with asyncio.timeout(30):
        await recorder.flush()
    numbers = []
    for told in every:
        assert await contents(sessions, told) == b"0\n1\n2\n3\n4\n"
        numbers += [record.seq for record in await log_of(sessions, told)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


async def test_recorder__a_command_that_the_database_rejects_delays_no_other(
    recorder, add, sessions
):
    bad = await add()
    good = await add(tenant_id=bad.row.tenant_id)
    bad.log.note(RecordType.GAP, {"reason": "\0"})
    recorder.schedule(bad)
    good.write(recorder, b"good")
    await good.stored()
    assert await contents(sessions, good) == b"good"
    recorder.drop(bad)


async def test_recorder__a_tenant_beyond_its_share_waits_and_others_do_not(lossy_database, add):
    engine = create_engine(lossy_database.url)
    limits = Limits(memory=100_000, share=10_000)
    recorder = Recorder(create_sessions(engine), name="me", lease=MINUTE, limits=limits)
    greedy, modest = await add(), await add()
    lossy_database.close()
    greedy.write(recorder, b"x" * 20_000)
    modest.write(recorder, b"x")
    waiting = asyncio.create_task(recorder.wait_for_room(greedy))
    async with asyncio.timeout(30):
        await recorder.wait_for_room(modest)
    assert not waiting.done()
    lossy_database.open()
    async with asyncio.timeout(30):
        await waiting
    await recorder.close()
    await engine.dispose()


async def test_recorder__a_lapsed_lease_belongs_to_the_next_recorder(add, sessions):
    told = await add()
    async with without_transaction(sessions) as session:
        repository = RecordingRepository(session)
        assert await repository.claim_lapsed(by="b", lease=MINUTE, limit=9) == []
        await repository.release([told.row.id], by="me")
        ((claimed, _),) = await repository.claim_lapsed(by="b", lease=MINUTE, limit=9)
        assert claimed.id == told.row.id
        assert await repository.claim_lapsed(by="c", lease=MINUTE, limit=9) == []
        assert await repository.extend([told.row.id], by="me", lease=MINUTE) == set()
        growth = LogWrite(
            command_id=told.row.id,
            last_seq=0,
            records=[NewRecord("stdout", 0, b"late", {})],
            changes=dict.fromkeys(("stdout_size", "stderr_size", "stdout_cut", "stderr_cut"), 0),
        )
        assert await repository.store(claimed.tenant_id, [growth], by="me", lease=MINUTE) == {}
        assert await session.scalar(select(Command.recorded_by)) == "b"
