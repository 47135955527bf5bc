"""Commands with endless output: writes to the database are bounded, and followers still work."""

import asyncio
import json
import shutil
from itertools import pairwise

import asyncpg
import pytest

from sandbox_server.commands.command_log import CommandLog
from sandbox_server.commands.recorder import Limits, Recorder
from sandbox_server.commands.recording import HANDED_OVER
from sandbox_server.commands.recording_repository import RecordingRepository
from sandbox_server.commands.retention import SMALLEST_BOUND
from sandbox_server.db.embedded import EmbeddedPostgres
from sandbox_server.db.models import Sandbox, Tenant
from sandbox_server.db.schema_migrations import upgrade
from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.commands import CommandState
from sandbox_server.domain.ids import new_id
from sandbox_server.log.output_repository import CommandOutputRepository
from sandbox_server.log.records import RecordType
from tests.engine.polling import until
from tests.server.commands.command_calls import MINUTE, records, run, start, written
from tests.server.support.in_process_server import running_server
from tests.server.support.server_process import server_process, variables_of

MIB = 2**20
BOUND = 4 * MIB
FLOOD = 300 * MIB
CHUNK = 64 * 1024


class Clock:
    """A clock that only tests advance, so that a slow test earns no allowance."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Flood:
    """A command whose output tests write."""

    def __init__(self, row, *, bound=BOUND, clock=None):
        self.row = row
        self.log = CommandLog(bound=bound, clock=clock or Clock())
        self.stored = 0
        self.has_ended = asyncio.Event()

    def ack(self, batch, grown):
        self.stored += batch.cost
        if grown.ended_at is not None:
            self.has_ended.set()

    def forget(self):
        raise AssertionError("It is recorded by another.")

    async def write(self, recorder, size):
        for _ in range(size // CHUNK):
            self.log.receive(RecordType.STDOUT, b"x" * CHUNK)
            recorder.schedule(self)
            await recorder.wait_for_room(self)
            await asyncio.sleep(0)

    async def is_idle(self):
        """Tell whether the recorder has written all that the allowance permits."""
        return self.log.is_held or not self.log.buffered_bytes

    async def end(self, recorder):
        self.log.note(RecordType.EXIT, {}, state=CommandState.EXITED, exit_code=0)
        recorder.schedule(self, now=True)
        async with asyncio.timeout(60):
            await self.has_ended.wait()


@pytest.fixture
async def own_database(scratch):
    """Run a PostgreSQL without other clients."""
    server = EmbeddedPostgres(scratch / "postgres", settings={"fsync": "off"})
    engine = create_engine(await asyncio.to_thread(server.start))
    await upgrade(engine)
    yield create_sessions(engine)
    await engine.dispose()


@pytest.fixture
async def recorder(own_database):
    # Nothing is lost by being slow: all that may be written is.
    limits = Limits(rate=2**40)
    recorder = Recorder(own_database, name="me", lease=MINUTE, limits=limits)
    yield recorder
    await recorder.close()


async def add_flood(sessions, tenant_id, **fields):
    async with sessions.begin() as session:
        if await session.get(Tenant, tenant_id) is None:
            session.add(Tenant(id=tenant_id, name=tenant_id, max_running=9, max_queued=9))
            await session.flush()
        sandbox = Sandbox(id=new_id(), tenant_id=tenant_id, template="base", timeout=MINUTE)
        session.add(sandbox)
        await session.flush()
        columns = {"id": new_id(), "tenant_id": tenant_id, "sandbox_id": sandbox.id, "cmd": "yes"}
        row = await RecordingRepository(session).add(by="me", lease=MINUTE, **columns)
    return Flood(row, **fields)


async def database_use(sessions):
    """Measure the WAL written so far and the size of the output table."""
    engine = sessions.kw["bind"]
    async with engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        assert isinstance(raw, asyncpg.Connection)
        return await raw.fetchrow(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint AS wal,"
            " pg_total_relation_size('command_output') AS size"
        )


async def test_recorder__a_flood_writes_a_small_multiple_of_its_bound(own_database, recorder):
    flood = await add_flood(own_database, new_id())
    before = await database_use(own_database)
    for _ in range(FLOOD // MIB):
        await flood.write(recorder, MIB)
        await until(flood.is_idle)
    await flood.end(recorder)
    after = await database_use(own_database)
    assert after["wal"] - before["wal"] < 3 * BOUND
    assert after["size"] - before["size"] < 3 * BOUND
    assert flood.log.buffered_bytes == 0


async def test_recorder__floods_make_room_for_other_commands_of_the_tenant(own_database):
    limits = Limits(rate=2**40, memory=8 * MIB, share=2 * MIB)
    recorder = Recorder(own_database, name="me", lease=MINUTE, limits=limits)
    tenant_id = new_id()
    floods = [await add_flood(own_database, tenant_id) for _ in range(4)]
    quiet = await add_flood(own_database, tenant_id)
    async with asyncio.timeout(60):
        for _ in range(16):
            for flood in floods:
                await flood.write(recorder, MIB)
                await until(flood.is_idle)
        quiet.log.receive(RecordType.STDOUT, b"quiet\n")
        recorder.schedule(quiet)
        await recorder.wait_for_room(quiet)
        await until(quiet.is_idle)
    assert sum(flood.log.buffered_bytes for flood in floods) <= limits.share + CHUNK
    assert quiet.log.buffered_bytes == 0
    for flood in floods:
        await flood.end(recorder)
    await recorder.close()


async def test_recorder__many_small_outputs_share_one_rate(own_database):
    clock, seconds, each = Clock(), 120, 30_000
    limits = Limits(rate=2**40, trickle=128 * 1024)
    recorder = Recorder(own_database, name="me", lease=MINUTE, limits=limits, clock=clock)
    tenant_id = new_id()
    outputs = [
        await add_flood(own_database, tenant_id, bound=SMALLEST_BOUND, clock=clock)
        for _ in range(16)
    ]
    for _ in range(seconds):
        clock.now += 1
        for output in outputs:
            output.log.receive(RecordType.STDOUT, b"x" * each)
            recorder.schedule(output)
        for output in outputs:
            await until(output.is_idle)
    received = len(outputs) * seconds * each
    stored = sum(output.stored for output in outputs)
    # Each has its beginning, burst and credit; the tenant has what it earned in that time and before.
    own = len(outputs) * 2 * (SMALLEST_BOUND + CHUNK)
    assert stored < own + limits.trickle * (seconds + 10) < received / 2
    for output in outputs:
        await output.end(recorder)
    await recorder.close()


@pytest.mark.needs_engine
async def test_recorder__the_end_of_a_flood_is_kept_without_a_gap(server, sandbox_id):
    ended = await run(
        server, sandbox_id, "head -c 60M /dev/zero | tr '\\0' x; echo; echo last >&2; exit 3"
    )
    assert ended.exit_code == 3
    assert ended.stdout_size == 60 * MIB + 1
    assert await written(server, ended, RecordType.STDERR) == b"last\n"
    stdout = [one for one in await records(server, ended) if is_about_stdout(one)]
    assert {first.type for first in stdout} == {RecordType.STDOUT, RecordType.GAP}
    for one, following in pairwise(stdout):
        assert end_of(one) == following.offset
    assert end_of(stdout[-1]) == ended.stdout_size
    last_gap = max(end_of(one) for one in stdout if one.type is RecordType.GAP)
    assert ended.stdout_size - last_gap > MIB // 4  # of a bound of 1 MiB
    kept = sum(len(one.content) for one in stdout)
    assert ended.stdout_cut == ended.stdout_size - kept


def is_about_stdout(record):
    return record.type is RecordType.STDOUT or record.data.get("stream") == "stdout"


def end_of(record):
    return record.offset + (len(record.content) or record.data.get("size", 0))


@pytest.mark.needs_engine
async def test_recorder__a_prompt_after_a_flood_is_stored_while_the_command_waits_for_input(
    database, living
):
    # Minutes of a trickle are held back.
    async with running_server(database, living, bound=16 * MIB) as server:
        sandbox_id = (await server.running()).id
        flood = "head -c 60M /dev/zero | tr '\\0' x"
        ask = 'read -r line; echo "got $line"'
        command = await start(
            server, sandbox_id, f"{flood}; echo 'Go on?'; {ask}", stdin=True, background=True
        )
        await until(lambda: ends_in(server, command, b"Go on?\n"), timeout=30)
        await server.commands.send_input(server.caller, sandbox_id, command.id, b"yes\n")
        ended = await server.commands.wait_ended(command, wait=MINUTE)
        assert await ends_in(server, ended, b"got yes\n")


async def ends_in(server, command, text):
    async with server.living.sessions() as session:
        output = CommandOutputRepository(session)
        last = await output.list_last(command.id, RecordType.STDOUT, max_bytes=100)
    return b"".join(record.content for record in last).endswith(text)


@pytest.mark.needs_engine
@pytest.mark.slow  # a crash in a flood
async def test_server_crash__another_server_continues_the_log_of_a_flood(engine, database_url):
    variables = variables_of(engine, database_url) | {"SANDBOX_SERVER_LEASE_S": "2"}
    with (
        server_process(variables=variables) as victim,
        server_process(variables=variables) as survivor,
    ):
        await asyncio.to_thread(victim.start)
        await asyncio.to_thread(survivor.start)
        shutil.copy(victim.state_dir / "admin.key", survivor.state_dir)
        async with victim.client() as caller:
            made = await caller.post("/v1/sandboxes", json={"template": "base"})
            commands = f"/v1/sandboxes/{made.json()['id']}/commands"
            flood = {"cmd": "until [ -e /tmp/stop ]; do seq 100000; done", "background": True}
            command = f"{commands}/{(await caller.post(commands, json=flood)).json()['id']}"
            await until(lambda: is_cut(caller, command), timeout=60)
        victim.kill()
        async with survivor.client() as caller:
            await follow_until(caller, f"{command}/output", HANDED_OVER)
            stop = await caller.post(commands, json={"cmd": "touch /tmp/stop"})
            assert stop.json()["exit_code"] == 0
            ended = await until(lambda: find_ended(caller, command), timeout=60)
            assert (ended["state"], ended["exit_code"]) == ("exited", 0)
            assert ended["stdout"].endswith("\n99999\n100000\n")


async def is_cut(caller, command):
    return (await caller.get(f"{command}/output")).json()["cut"]


async def find_ended(caller, command):
    told = (await caller.get(command)).json()
    return told if told["state"] not in {"starting", "running"} else None


async def follow_until(caller, path, reason):
    """Follow a log until the gap with this reason. All earlier bytes are received or covered by a gap of known size."""
    position = 0
    headers = {"Accept": "text/event-stream"}
    async with asyncio.timeout(90), caller.stream("GET", path, headers=headers) as answer:
        async for line in answer.aiter_lines():
            if not line.startswith("data:"):
                continue
            event = json.loads(line.removeprefix("data:"))
            if event["type"] == "gap" and event["reason"] == reason:
                return
            if event["type"] in {"stdout", "gap"}:
                assert event["offset"] == position
                position += event["size"] if event["type"] == "gap" else len(event["text"])
    raise AssertionError(f"The log ended at {position} without that gap.")
