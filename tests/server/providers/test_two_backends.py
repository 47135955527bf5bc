"""Two engines at once: one on loopback, one over TLS under a domain with an authority of its own."""

import asyncio
import secrets
import socket
from dataclasses import replace
from datetime import timedelta

import pytest
import trustme

from sandbox_server.admin.backends import BackendOverview, register_backends
from sandbox_server.domain.errors import BackendUnavailable
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.domain.state import State, Target
from sandbox_server.jobs import kinds
from sandbox_server.lifecycle import build_reconciliation
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.registry import open_backends
from sandbox_server.providers.repository import BackendRepository
from sandbox_server.providers.settings import BackendSettings
from sandbox_server.sandboxes.drift.checker import CheckIntervals
from tests.engine.engine_process import running_engine
from tests.server.support.in_process_server import running_server
from tests.server.support.managed_sandboxes import MINUTE, new_living

pytestmark = pytest.mark.needs_engine

NAME = "sandboxes.localhost"  # whose names are this machine's, whoever is asked
AT_ONCE = timedelta()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Make a certificate authority and a wildcard certificate of the domain."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert(f"*.{NAME}", NAME)
    authority.cert_pem.write_to_path(directory / "ca.pem")
    certificate.private_key_pem.write_to_path(directory / "key.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(directory / "cert.pem", append=True)
    return directory


@pytest.fixture(scope="module")
def remote(authority):
    """Run an engine that serves TLS under a domain."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = [
        *("--tls-cert", f"{authority}/cert.pem", "--tls-key", f"{authority}/key.pem"),
        *("--domain", f"{NAME}:{port}", "--pool-size", "1"),
    ]
    with running_engine(*flags, port=port) as engine:
        yield engine


@pytest.fixture
def settings(engine, remote, authority):
    """Say where both engines are, as the settings of a server do."""
    local = {
        "name": "local",
        "api_url": engine.url,
        "sandbox_url": engine.url,
        "capacity": 2,
        "overflow_to": "remote",
    }
    over_tls = {
        "name": "remote",
        "domain": f"{NAME}:{remote.port}",
        "ca_cert": authority / "ca.pem",
        "overflow_to": "local",
    }
    return [
        BackendSettings.model_validate({**local, "api_key": engine.api_key}),
        BackendSettings.model_validate({**over_tls, "api_key": remote.api_key}),
    ]


@pytest.fixture
async def backends(settings):
    """Reach both, and leave nothing behind."""
    backends = open_backends(settings, installation_id=secrets.token_hex(10))
    yield backends
    for name in backends:
        for left in await backends[name].list_all():
            await backends[name].kill(left.id)
    await backends.close()


async def test_two_backends__a_domain_and_a_ca_certificate_suffice(backends, new_sandbox, remote):
    backend = backends["remote"]
    access = await backend.create(new_sandbox())
    sandbox = backend.handle(access)
    assert sandbox.envd_api_url == f"https://49983-{access.provider_id}.{NAME}:{remote.port}"
    assert (await sandbox.commands.run("echo over TLS")).stdout == "over TLS\n"
    await sandbox.files.write("file", "content")
    assert await sandbox.files.read("file") == "content"
    stream = await sandbox.files.read("file", format="stream")
    assert b"".join([chunk async for chunk in stream]) == b"content"
    assert await backend.is_answering(access)
    assert backend.host(access, 3000) == f"3000-{access.provider_id}.{NAME}:{remote.port}"


async def test_two_backends__a_ca_certificate_is_trusted_for_its_backend_only(
    settings, new_sandbox
):
    same = settings[1].model_dump(exclude={"name", "ca_cert"})
    untrusting = BackendSettings(name="untrusting", **same)
    backends = open_backends([*settings, untrusting], installation_id="installation")
    try:
        access = await backends["remote"].create(new_sandbox())
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            await backends["untrusting"].list_all()
        with pytest.raises(BackendUnavailable):
            await backends["untrusting"].is_answering(access)
        other = backends["untrusting"]
        assert isinstance(other, E2BBackend)
        with pytest.raises(Exception, match="certificate"):
            await other.handle(access).commands.run("true")
        await backends["remote"].kill(access.provider_id)
    finally:
        await backends.close()


@pytest.fixture
async def livings(sessions, backends):
    """Have one server look after a tenant's sandboxes at both."""
    local = await new_living(sessions, backends["local"])
    await register_backends(sessions, backends)
    core = build_reconciliation(sessions, backends, local.vault)
    local = replace(local, backends=backends, core=core)
    return local, replace(local, backend_name="remote")


async def patrol(living):
    """Look at a backend once, after whose first failure it counts as down."""
    intervals = CheckIntervals(again=AT_ONCE, answer_within=timedelta(seconds=10))
    patrol = living.drift_checker(intervals=intervals)
    name = living.backend_name
    await patrol.check(
        LeasedJob(id=1, kind=kinds.DRIFT_CHECK, subject=name, attempts=1, leased_by="a")
    )
    async with living.sessions() as session:
        return await BackendRepository(session).get(name)


async def test_two_backends__one_that_is_down_keeps_its_sandboxes_and_the_other_works(
    livings, remote
):
    local, far = livings
    here, there = await local.started(), await far.started()
    assert (await patrol(far)).state == "up"

    remote.kill()
    down = await patrol(far)
    await patrol(local)

    assert down.state == "down"
    assert down.state_reason
    assert (await far.row(there)).state is State.RUNNING
    await local.want(here, Target.PAUSED)
    await local.settle(here)
    assert (await local.row(here)).state is State.PAUSED

    await asyncio.to_thread(remote.start)
    assert (await patrol(far)).state == "up"
    await far.want(there, Target.PAUSED)
    await far.settle(there)
    assert (await far.row(there)).state is State.PAUSED


async def test_two_backends__each_sandbox_is_compared_with_its_own(livings):
    local, far = livings
    here, there = await local.started(), await far.started()
    await far.backend.kill((await far.row(there)).backend_sandbox_id)
    assert (await patrol(local)).strangers == 0
    assert (await far.row(there)).state is State.RUNNING
    assert (await patrol(far)).strangers == 0
    assert (await far.row(there)).state is State.FAILED
    assert (await local.row(here)).state is State.RUNNING


@pytest.fixture
async def server(database, livings):
    """Run a server for one caller, whose sandboxes go to the local engine when nobody says."""
    async with running_server(database, livings[0]) as server:
        yield server


async def test_overflow__a_sandbox_without_a_slot_is_placed_at_the_next_backend(server):
    placed = [(await server.running()).backend for _ in range(3)]
    assert placed == ["local", "local", "remote"]


async def test_drain__a_backend_keeps_its_sandboxes_and_gets_no_new_ones(server, livings):
    local, _ = livings
    overview = BackendOverview(local.sessions, local.backends)
    before = await server.running()
    await overview.set_drained("local", drained=True)

    assert (await server.running()).backend == "remote"
    waits = await server.controller.create(
        server.caller, SandboxRequest(backend="local"), wait=AT_ONCE
    )
    assert (waits.state, waits.backend) == (State.QUEUED, None)

    assert (await server.controller.pause(server.caller, before.id)).state is State.PAUSED
    resumed = await server.controller.resume(server.caller, before.id, wait=MINUTE)
    assert resumed.state is State.RUNNING

    await overview.set_drained("local", drained=False)
    assert (await server.settled(waits.id, State.RUNNING)).backend == "local"


async def test_backend_down__new_sandboxes_are_placed_elsewhere_or_wait(server, livings, remote):
    _, far = livings
    wanted = SandboxRequest(backend="remote")
    remote.kill()
    await patrol(far)

    waits = await server.controller.create(server.caller, wanted, wait=AT_ONCE)
    assert waits.state is State.QUEUED
    await server.set_tenant(defaults={"backend": "remote"})
    assert (await server.running()).backend == "local"

    await asyncio.to_thread(remote.start)
    await patrol(far)
    assert (await server.settled(waits.id, State.RUNNING)).backend == "remote"


async def test_placement_rule__selects_the_backend_of_an_agent_type(server):
    await server.set_tenant(rules=[{"match": {"agent_type": "ci-fix"}, "backend": "remote"}])
    assert (await server.running(agent_type="ci-fix")).backend == "remote"
    assert (await server.running(agent_type="review")).backend == "local"
