"""Two servers on one database and one provider: to callers they are one, whichever they ask."""

import asyncio
import secrets
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import func, select, text

from sandbox_server.db.installation import InstallationRepository
from sandbox_server.db.session import create_engine, create_sessions
from tests.engine.polling import until
from tests.server.support.databases import new_database
from tests.server.support.event_reader import following
from tests.server.support.metrics_reader import labelled, samples_in
from tests.server.support.server_process import (
    ServerProcess,
    new_encryption_key,
    server_process,
    variables_of,
)

pytestmark = pytest.mark.needs_engine

SANDBOXES = "/v1/sandboxes"
OCCUPIES_SLOT = {"starting", "running", "pausing", "resuming", "stopping"}
MIGRATING = 0x5A4DB0C5  # what whoever migrates locks, as migrations/env.py says
# Longer than a lease, after which others go on with what a killed server had begun.
PATIENCE_S = 100

_WAITING = text(
    "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
    " WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted"
)


@dataclass(frozen=True)
class Pair:
    first: ServerProcess
    other: ServerProcess
    database_url: str
    variables: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(bundled_url, engine):
    async with new_database(bundled_url) as url:
        variables = variables_of(engine, url)
        with (
            server_process("--capacity", "40", variables=variables) as first,
            server_process("--capacity", "40", variables=variables) as other,
        ):
            first.start()
            other.start()
            shutil.copy(first.state_dir / "admin.key", other.state_dir)
            yield Pair(first, other, url, variables)


@dataclass(frozen=True)
class Tenant:
    """One tenant's view of both servers."""

    first: httpx.AsyncClient
    other: httpx.AsyncClient

    @property
    def both(self):
        return self.first, self.other

    async def create(self, **body):
        created = await self.first.post(SANDBOXES, params={"wait": 60}, json=body)
        assert created.status_code == 201, created.text
        return created.json()["id"]

    async def states(self, *, at=None):
        """List the states of all its sandboxes, those that have ended too."""
        every = ["queued", *sorted(OCCUPIES_SLOT), "paused", "stopped", "failed"]
        listed = await (at or self.other).get(SANDBOXES, params={"limit": 100, "state": every})
        assert listed.status_code == 200, listed.text
        return {one["id"]: one["state"] for one in listed.json()["items"]}

    async def is_in(self, sandbox_id, state, *, at):
        return (await at.get(f"{SANDBOXES}/{sandbox_id}")).json()["state"] == state


@asynccontextmanager
async def tenant_of(pair, **quotas):
    name = f"t-{secrets.token_hex(4)}"
    async with pair.first.client() as admin:
        made = await admin.put(f"/v1/tenants/{name}", json=quotas)
        assert made.status_code == 201, made.text
        key = (await admin.post("/v1/keys", json={"tenant": name})).json()
    headers = {"X-API-Key": key["secret"]}
    async with (
        httpx.AsyncClient(base_url=pair.first.url, headers=headers, timeout=120) as first,
        httpx.AsyncClient(base_url=pair.other.url, headers=headers, timeout=120) as other,
    ):
        tenant = Tenant(first, other)
        yield tenant
        for sandbox_id in await tenant.states():
            await other.delete(f"{SANDBOXES}/{sandbox_id}")

        async def has_nothing():
            return set((await tenant.states()).values()) <= {"stopped", "failed"}

        await until(has_nothing, timeout=PATIENCE_S)


@pytest.fixture
async def tenant(pair):
    async with tenant_of(pair) as tenant:
        yield tenant


async def test_replicas__a_sandbox_created_at_one_is_used_at_the_other(tenant):
    sandbox_id = await tenant.create()
    path = f"{SANDBOXES}/{sandbox_id}"
    assert await tenant.is_in(sandbox_id, "running", at=tenant.other)
    assert (await tenant.other.post(f"{path}/pause")).json()["state"] == "paused"
    assert await tenant.is_in(sandbox_id, "paused", at=tenant.first)
    assert (await tenant.first.post(f"{path}/resume")).json()["state"] == "running"
    command = {"sandbox_id": sandbox_id, "command": "echo here"}
    assert (await tenant.other.post("/sandboxes/run-command", json=command)).json()[
        "output"
    ] == "here\n"
    assert (await tenant.other.delete(path)).status_code == 204
    await until(lambda: tenant.is_in(sandbox_id, "stopped", at=tenant.first), timeout=60)


async def test_replicas__a_command_of_one_is_followed_and_gets_input_at_the_other(tenant):
    path = f"{SANDBOXES}/{await tenant.create()}"
    body = {"cmd": "for i in 1 2; do read line; echo $line; done", "stdin": True}
    begun = await tenant.first.post(f"{path}/commands", json={**body, "background": True})
    command = f"{path}/commands/{begun.json()['id']}"
    async with following(tenant.other, f"{command}/output") as stream:
        await stream.until("started")
        await tenant.other.post(f"{command}/input", json={"text": "across\n"})
        assert (await stream.until("stdout")).data["text"] == "across\n"
        assert (await tenant.other.post(f"{path}/pause")).status_code == 200
        await tenant.other.post(f"{command}/input", json={"text": "from sleep\n"})
        assert (await stream.until("stdout")).data["text"] == "from sleep\n"
        assert (await stream.until("exit")).data["exit_code"] == 0


async def test_replicas__a_request_waiting_at_one_sees_a_slot_released_at_the_other(pair):
    async with tenant_of(pair, max_running=1) as tenant:
        in_the_way = await tenant.create()
        waiting = asyncio.create_task(
            tenant.other.post(SANDBOXES, params={"wait": 100}, json={"metadata": {"waits": "yes"}})
        )

        async def is_queued():
            return "queued" in (await tenant.states(at=tenant.first)).values()

        await until(is_queued)
        assert (await tenant.first.delete(f"{SANDBOXES}/{in_the_way}")).status_code == 204
        answer = await waiting
        assert (answer.status_code, answer.json()["state"]) == (201, "running")


async def test_replicas__a_key_revoked_at_one_is_refused_at_the_other(pair):
    async with pair.first.client() as admin:
        key = (await admin.post("/v1/keys", json={"scopes": ["read"]})).json()
        headers = {"X-API-Key": key["secret"]}
        async with httpx.AsyncClient(
            base_url=pair.other.url, headers=headers, timeout=60
        ) as holder:
            assert (await holder.get(SANDBOXES)).status_code == 200  # from now on it is trusted
            assert (await admin.delete(f"/v1/keys/{key['id']}")).status_code == 204

            async def is_refused():
                return (await holder.get(SANDBOXES)).status_code == 401

            await until(is_refused, timeout=10)


async def test_replicas__never_exceed_a_quota_together(pair):
    async with tenant_of(pair, max_running=3, max_queued=50) as tenant:
        asked = [
            asyncio.create_task(at.post(SANDBOXES, params={"wait": 0}, json={}))
            for at in tenant.both * 8
        ]
        most = 0

        async def has_settled():
            nonlocal most
            states = list((await tenant.states()).values())
            most = max(most, sum(state in OCCUPIES_SLOT for state in states))
            return len(states) == len(asked) and states.count("running") == 3

        await until(has_settled, timeout=PATIENCE_S)
        assert {answer.status_code for answer in await asyncio.gather(*asked)} <= {201, 202}
        assert most == 3
        assert list((await tenant.states()).values()).count("queued") == 13


async def test_replicas__fifty_session_calls_at_both_create_one_sandbox(tenant):
    path = f"{SANDBOXES}/by-session/one"
    answers = await asyncio.gather(
        *(at.put(path, params={"wait": 60}, json={}) for at in tenant.both * 25)
    )
    assert sorted({answer.status_code for answer in answers}) == [200, 201]
    assert [answer.status_code for answer in answers].count(201) == 1
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(await tenant.states()) == 1


async def test_replicas__a_request_repeated_at_the_other_creates_nothing(tenant):
    headers = {"Idempotency-Key": "order-7"}
    answers = await asyncio.gather(
        *(
            at.post(SANDBOXES, params={"wait": 60}, json={}, headers=headers)
            for at in tenant.both * 10
        )
    )
    assert {answer.json()["state"] for answer in answers} == {"running"}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(await tenant.states()) == 1
    other_body = {"metadata": {"another": "body"}}
    refused = await tenant.other.post(SANDBOXES, json=other_body, headers=headers)
    assert refused.json()["code"] == "idempotency-mismatch"


async def test_replicas__report_the_same_shared_metrics(pair, tenant):
    await tenant.create()

    async def count(server):
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as local:
            return labelled(samples_in((await local.get("/metrics")).text), "sandboxes")

    async def agree():
        first, other = await asyncio.gather(count(pair.first), count(pair.other))
        return first == other and sum(first.values()) == 1

    await until(agree, timeout=60)


async def test_replicas__stopping_one_leaves_all_sandboxes_running(pair, tenant):
    sandbox_id = await tenant.create()
    timeline = f"{SANDBOXES}/{sandbox_id}/timeline"
    before = (await tenant.other.get(timeline)).json()
    assert pair.first.stop() == 0
    try:
        assert (await tenant.other.get(timeline)).json() == before
        command = {"sandbox_id": sandbox_id, "command": "echo alive"}
        answer = await tenant.other.post("/sandboxes/run-command", json=command)
        assert answer.json()["output"] == "alive\n"
    finally:
        await asyncio.to_thread(pair.first.start)


@pytest.mark.slow  # waits for a lease to lapse; the crash matrix has a step of it in `make test`
async def test_replicas__one_finishes_the_creates_of_a_killed_one(pair, backend_at):
    async with tenant_of(pair, max_running=30, max_queued=30) as tenant:
        asked = [
            asyncio.create_task(tenant.first.post(SANDBOXES, params={"wait": 60}, json={}))
            for _ in range(20)
        ]

        async def some_are_under_way():
            return "starting" in (await tenant.states()).values()

        await until(some_are_under_way, timeout=60, pause=0)
        pair.first.kill()
        try:
            await asyncio.gather(*asked, return_exceptions=True)
            known = await tenant.states()
            assert known

            async def are_all_settled():
                return set((await tenant.states()).values()) <= {"running", "failed"}

            await until(are_all_settled, timeout=PATIENCE_S)
            states = await tenant.states()
            assert states.keys() == known.keys()
            for sandbox_id in states:
                told = (await tenant.other.get(f"{SANDBOXES}/{sandbox_id}")).json()
                assert told["state"] == "running" or told["state_reason"]
            provider = backend_at(installation_id=await find_installation(pair))
            assert len(await provider.list_all()) == list(states.values()).count("running")
        finally:
            await asyncio.to_thread(pair.first.start)


async def test_replicas__two_starting_on_an_empty_database_become_ready(server_url, engine):
    async with new_database(server_url, template="template0") as url:
        variables = variables_of(engine, url)
        with server_process(variables=variables) as one, server_process(variables=variables) as two:
            async with migrations_held_up(url) as are_both_waiting:
                starting = asyncio.gather(*(asyncio.to_thread(each.start) for each in (one, two)))
                await until(are_both_waiting, timeout=60)
            await starting
            keys = [
                file.read_text().strip()
                for each in (one, two)
                if (file := each.state_dir / "admin.key").exists()
            ]
            assert keys
            for each in (one, two):
                async with httpx.AsyncClient(base_url=each.url, timeout=60) as anybody:
                    assert (await anybody.get("/readyz")).status_code == 200
                    for key in keys:
                        told = await anybody.get("/v1/stats", headers={"X-API-Key": key})
                        assert told.status_code == 200
            assert one.stop() == two.stop() == 0


def test_replicas__one_with_another_encryption_key_does_not_start(pair):
    variables = pair.variables | {"SANDBOX_SERVER_ENCRYPTION_KEYS": new_encryption_key()}
    with server_process(variables=variables) as stranger:
        refused = stranger.run("serve", "--port", "0")
    assert refused.returncode == 78
    assert "encrypted with the key" in refused.stderr
    assert "Traceback" not in refused.stderr


@asynccontextmanager
async def migrations_held_up(url):
    """Keep everybody from migrating until the block ends; gives a way to see whether two wait for that."""
    database = create_engine(url)
    async with database.connect() as connection:
        await connection.execute(select(func.pg_advisory_xact_lock(MIGRATING)))

        async def are_both_waiting():
            return await connection.scalar(_WAITING) == 2

        yield are_both_waiting
    await database.dispose()


async def find_installation(pair):
    database = create_engine(pair.database_url)
    async with create_sessions(database).begin() as session:
        installation = await InstallationRepository(session).find_or_make()
    await database.dispose()
    return installation.id
