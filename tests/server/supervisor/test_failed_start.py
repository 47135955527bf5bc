"""A start that fails, or is interrupted, leaves nothing of what it has started."""

import asyncio
import os
import signal
import socket
from contextlib import asynccontextmanager
from functools import partial

import asyncpg
import pytest

from sandbox_server.db.embedded import EmbeddedPostgres
from sandbox_server.db.installation import InstallationRepository
from sandbox_server.domain.state import State
from sandbox_server.supervisor.engine import LocalEngine
from sandbox_server.supervisor.process_handle import ProcessHandle
from tests.engine import leftovers
from tests.engine.polling import until
from tests.server.support.sandbox_rows import add, backend, sandbox, tenant
from tests.server.support.server_process import server_process

pytestmark = pytest.mark.needs_engine

PASSWORD = "hunter2"


@pytest.fixture
def server():
    """Give a server with an engine of its own, which keeps a sandbox ready."""
    with server_process(variables={"SANDBOX_ENGINE_READY_SANDBOXES": "1"}) as server:
        yield server


@pytest.fixture
def left(server):
    return leftovers.EngineAt(server.engine_dir)


async def refuse(server, *flags):
    """Start a server that cannot; gives what it says."""
    refused = await asyncio.to_thread(server.run, "serve", "--port", "0", *flags)
    assert refused.returncode == 78, refused.stderr
    assert "Traceback" not in refused.stderr
    return refused.stderr


async def never_started(server, left):
    assert not (server.engine_dir / "engine.log").exists()
    await leftovers.nothing(left)


def with_password(url, password):
    user, _, rest = url.partition("@")
    return f"{user.rpartition(':')[0]}:{password}@{rest}"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            f"postgresql://me:{PASSWORD}@127.0.0.1:1/db",
            "Cannot connect to PostgreSQL at 127.0.0.1:1 (DATABASE_URL): Connection refused. Check that",
        ),
        (
            f"postgresql://me:{PASSWORD}@nowhere.invalid/db",
            "at nowhere.invalid:5432 (DATABASE_URL)",
        ),
        (f"postgresql://me:12/{PASSWORD}@127.0.0.1:1/db", "percent-encoded"),
        (
            f"postgresql://me:{PASSWORD}@127.0.0.1:port/db",
            "is not the URL of a PostgreSQL database",
        ),
        (PASSWORD, "DATABASE_URL is not the URL of a PostgreSQL database"),
    ],
)
async def test_failed_start__an_unreachable_database_is_reported_before_the_engine_starts(
    server, left, url, said
):
    server.variables["DATABASE_URL"] = url
    told = await refuse(server)
    assert said in told
    assert PASSWORD not in told
    await never_started(server, left)


async def test_failed_start__a_wrong_password_is_reported_before_the_engine_starts(
    server, left, database_url
):
    server.variables["DATABASE_URL"] = with_password(database_url, PASSWORD)
    told = await refuse(server)
    assert "Correct the user or the password in DATABASE_URL." in told
    assert PASSWORD not in told
    await never_started(server, left)


async def test_failed_start__a_missing_database_is_reported_before_the_engine_starts(
    server, left, database_url
):
    server.variables["DATABASE_URL"] = database_url.replace("/test_", "/missing_")
    told = await refuse(server)
    assert 'database "missing_' in told
    assert "Create the database, or correct its name in DATABASE_URL." in told
    await never_started(server, left)


async def test_failed_start__a_foreign_database_is_reported_before_the_engine_starts(
    server, left, database_url, database
):
    name = database_url.rpartition("/")[2].partition("?")[0]
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
        rest = database_url.partition("@")[2].replace(f"/{name}", "/postgres")
        server.variables["DATABASE_URL"] = f"postgresql://{name}:{PASSWORD}@{rest}"
        told = await refuse(server)
    finally:
        await connection.execute(f"DROP ROLE {name}")
        await connection.close()
    assert "cannot be upgraded: permission denied for schema public" in told
    assert PASSWORD not in told
    await never_started(server, left)


async def test_failed_start__a_directory_closed_to_the_account_is_reported_before_the_engine_starts(
    server, left
):
    server.directory.chmod(0o700)
    told = await refuse(server)
    assert f"cannot enter {server.directory}. Choose another --state-dir, or grant access" in told
    await never_started(server, left)


async def test_failed_start__a_port_in_use_is_reported_before_the_engine_starts(server, left):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = await refuse(server, "--port", str(port))
    assert told == f"Port {port} of 127.0.0.1 is in use. Choose another --port.\n"
    await never_started(server, left)


async def test_failed_start__invalid_templates_are_reported_before_the_engine_starts(server, left):
    told = await refuse(server, "--template-dir", str(server.directory))
    assert "templates/e2b.toml is missing in" in told
    await never_started(server, left)


async def test_failed_start__an_engine_that_cannot_start_stops_the_database(server, left):
    server.variables["SANDBOX_ENGINE_RUNTIME"] = "no-such-runtime"
    assert "no-such-runtime: not found" in await refuse(server)
    assert not EmbeddedPostgres(server.state_dir / "postgres").is_running
    await leftovers.nothing(left)


async def test_failed_start__an_unusable_engine_directory_is_named(server, left, tmp_path):
    file = tmp_path / "file"
    file.touch()
    told = await refuse(server, "--engine-dir", str(file))
    assert f"Cannot use the engine directory {file}" in told
    assert "--engine-dir" in told


async def test_failed_start__the_wrong_engine_is_stopped(server, left, database_url, sessions):
    await add(sessions, tenant(), backend("local"), sandbox(State.RUNNING))
    async with sessions.begin() as session:
        await InstallationRepository(session).find_or_make()
        assert await InstallationRepository(session).take_engine("another", backend="local")
    server.variables["DATABASE_URL"] = database_url
    assert "belong to another engine" in await refuse(server)
    assert "listening on" in (server.engine_dir / "engine.log").read_text()
    await leftovers.nothing(left)


# Other tests' servers wait for locks in other databases of the same PostgreSQL.
_WAITING_FOR_TABLE = """
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
    WHERE NOT granted AND datname = current_database() AND relation = $1::text::regclass
"""


@asynccontextmanager
async def held_up(server, url, *, at):
    """Start the server and block it at this table of the database, where its engine already runs."""
    holder, observer = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        await holder.execute(f"BEGIN; LOCK TABLE {at}")
        server.launch()

        async def waits():
            return await observer.fetchval(_WAITING_FOR_TABLE, at) > 0

        await until(waits, timeout=120)
        yield
    finally:
        holder.terminate()
        observer.terminate()


async def has_made_a_ready_sandbox(left):
    async def is_there():
        return (await asyncio.to_thread(leftovers.count, left))["containers"] == 1

    await until(is_there, timeout=60)


@pytest.mark.parametrize(
    ("number", "ending"),
    [
        (signal.SIGTERM, -signal.SIGTERM),
        # Other signals end the same code; each costs a start with an engine.
        pytest.param(signal.SIGHUP, -signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
async def test_failed_start__an_interrupted_one_stops_what_it_started(
    server, left, database_url, number, ending
):
    server.variables["DATABASE_URL"] = database_url
    async with held_up(server, database_url, at="api_keys"):
        await has_made_a_ready_sandbox(left)
        os.kill(server.pid, number)
        assert await asyncio.to_thread(server.wait) == ending
        if number != signal.SIGKILL:  # then there is nobody who could wait for the engine's end
            assert find_engine(server) is None
        await leftovers.nothing(left)
    assert "Traceback" not in server.log
    server.start()
    assert await run(server, await create(server), "echo alive") == "alive\n"


def find_engine(server):
    note = LocalEngine(server.engine_dir).find_note()
    return None if note is None else ProcessHandle.find(note.identity)


async def find_serving(server):
    """Find the process that serves; the engine is the other child."""
    return next((pid for pid in server.children if pid != server.engine_pid), None)


@pytest.mark.parametrize(
    ("number", "to_parent", "ending"),
    [
        pytest.param(signal.SIGTERM, True, 128 + signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, True, 128 + signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, True, -signal.SIGKILL, marks=pytest.mark.slow),
        (signal.SIGKILL, False, 128 + signal.SIGKILL),
    ],
)
async def test_failed_start__a_server_that_ends_before_it_serves_stops_its_engine(
    server, left, database_url, number, to_parent, ending
):
    server.variables["DATABASE_URL"] = database_url
    async with held_up(server, database_url, at="backends"):
        await has_made_a_ready_sandbox(left)
        serving = await until(partial(find_serving, server))
        os.kill(server.pid if to_parent else serving, number)
        assert await asyncio.to_thread(server.wait) == ending
        await leftovers.nothing(left)
    assert "Traceback" not in server.log


@pytest.mark.slow  # builds the base image
async def test_failed_start__an_interrupted_one_ends_the_build_of_the_base_image(server, left):
    images = server.directory / "images"
    server.variables["SANDBOX_ENGINE_IMAGES_DIR"] = str(images)
    server.launch()

    async def builds():
        return server.log_file.exists() and "base image: " in server.log

    await until(builds, timeout=60)
    os.kill(server.pid, signal.SIGTERM)
    assert await asyncio.to_thread(server.wait) == -signal.SIGTERM
    await leftovers.nothing(left)
    assert list((images / "building").iterdir()) == []
    assert not EmbeddedPostgres(server.state_dir / "postgres").is_running


async def create(server):
    async with server.client() as admin:
        created = await admin.post("/v1/sandboxes", json={})
    assert created.status_code == 201, created.text
    return created.json()["id"]


async def run(server, sandbox_id, command):
    async with server.client() as admin:
        answer = await admin.post(
            "/sandboxes/run-command", json={"sandbox_id": sandbox_id, "command": command}
        )
    assert answer.status_code == 200, answer.text
    return answer.json()["output"]


@pytest.mark.slow  # three starts; `test_stopping` has sandboxes that survive a stop and a crash
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_failed_start__existing_sandboxes_survive(server, left, number):
    server.start()
    sandbox_id = await create(server)
    await run(server, sandbox_id, "nohup sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid")
    assert server.stop() == 0
    before = leftovers.of_sandboxes(left)
    database = EmbeddedPostgres(server.state_dir / "postgres")
    async with held_up(server, database.start(), at="tenants"):
        os.kill(server.pid, number)
        assert await asyncio.to_thread(server.wait) == -number
    await until(lambda: engine_is_gone(server), timeout=30)
    assert leftovers.of_sandboxes(left) == before
    server.start()
    assert await run(server, sandbox_id, "kill -0 $(cat /tmp/pid) && echo alive") == "alive\n"


async def engine_is_gone(server):
    return find_engine(server) is None


@pytest.mark.slow  # three starts
async def test_failed_start__an_existing_engine_runs_on(server, database_url):
    server.variables["DATABASE_URL"] = database_url
    server.start()
    sandbox_id = await create(server)
    server.kill()
    before = find_engine(server).identity
    async with held_up(server, database_url, at="api_keys"):
        os.kill(server.pid, signal.SIGTERM)
        assert await asyncio.to_thread(server.wait) == -signal.SIGTERM
    server.start()
    assert find_engine(server).identity == before
    assert await run(server, sandbox_id, "echo alive") == "alive\n"
